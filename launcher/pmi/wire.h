// Messages of messages.h as FlatBuffers (wire.fbs); the verifier checks each on receipt.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "launcher/pmi/messages.h"

namespace regroup::pmi {

inline constexpr std::uint16_t kWireVersion = 3;
inline constexpr std::size_t kMaxMessageBytes = 16 << 20;

[[nodiscard]] std::vector<std::byte> encode(const Message& message);
// kDataLoss if it does not verify, kInvalidArgument for another version.
[[nodiscard]] base::Result<Message> decode(std::span<const std::byte> bytes);

}  // namespace regroup::pmi
