// Encodes and decodes the messages between controller and agents: FlatBuffers (wire.fbs) in frames
// of proto/wire.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "launcher/agent/messages.h"

namespace regroup::agent {

#ifndef REGROUP_NODE_WIRE_VERSION  // a test sets another version
#define REGROUP_NODE_WIRE_VERSION 1
#endif
inline constexpr std::uint16_t kWireVersion = REGROUP_NODE_WIRE_VERSION;

[[nodiscard]] std::vector<std::byte> encode(const Message& message);
// kDataLoss: the bytes do not verify or a value is out of range. kInvalidArgument: another version.
[[nodiscard]] base::Result<Message> decode(std::span<const std::byte> payload);

}  // namespace regroup::agent
