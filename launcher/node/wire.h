// Bytes of the messages between head and agents: FlatBuffers (wire.fbs) in the frames of core/wire.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/status.h"
#include "launcher/node/messages.h"

namespace regroup::node {

#ifndef REGROUP_NODE_WIRE_VERSION  // of a test, to be another version
#define REGROUP_NODE_WIRE_VERSION 1
#endif
inline constexpr std::uint16_t kWireVersion = REGROUP_NODE_WIRE_VERSION;

[[nodiscard]] std::vector<std::byte> encode(const Message& message);
// kDataLoss if it does not verify or makes no sense, kInvalidArgument for another version.
[[nodiscard]] core::Result<Message> decode(std::span<const std::byte> payload);

}  // namespace regroup::node
