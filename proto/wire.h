// Encodes and decodes control messages. A frame is a little-endian u32 length, then that many bytes
// of a FlatBuffers Message (proto/wire.fbs), which decode() verifies.
// docs/reference/formats/wire.md; golden files in tests/golden/wire.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "proto/message.h"

namespace regroup::proto {

inline constexpr std::uint16_t kWireVersion = 1;
inline constexpr std::uint32_t kMaxFrameBytes = 1 << 20;

// Returns a whole frame, length included.
[[nodiscard]] std::vector<std::byte> encode(const Message& message);
// Decodes the payload of one frame. kDataLoss if it does not verify or is malformed
// (proto/message_check.h), kInvalidArgument for another version.
[[nodiscard]] base::Result<Message> decode(std::span<const std::byte> payload);

// A World without a message around it: its form in the arena and the journal.
[[nodiscard]] std::vector<std::byte> encode_world(const World& world);
[[nodiscard]] base::Result<World> decode_world(std::span<const std::byte> bytes);

// Cuts a byte stream into messages. A bad frame is final: every later next() returns the same
// error.
class FrameReader {
 public:
  void append(std::span<const std::byte> bytes);
  // Returns the next whole message, nothing if more bytes are needed, or the error.
  [[nodiscard]] base::Result<std::optional<Message>> next();
  // As next(), for frames that hold something else: returns the payload unverified; it is valid
  // until the next append().
  [[nodiscard]] base::Result<std::optional<std::span<const std::byte>>> next_payload();

 private:
  std::vector<std::byte> buffer_;
  std::size_t start_ = 0;
  base::Status error_;
};

}  // namespace regroup::proto
