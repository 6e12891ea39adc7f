// Cuts a stream of bytes into frames: docs/reference/formats/wire.md. A length is believed only up
// to kMaxFrameBytes.
#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "base/status.h"
#include "proto/wire.h"

namespace regroup::proto {

void FrameReader::append(std::span<const std::byte> bytes) {
  buffer_.erase(buffer_.begin(),
                buffer_.begin() + static_cast<std::ptrdiff_t>(std::exchange(start_, 0)));
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

base::Result<std::optional<std::span<const std::byte>>> FrameReader::next_payload() {
  using Payload = std::optional<std::span<const std::byte>>;
  if (!error_.ok()) return error_;
  const std::span<const std::byte> rest = std::span(buffer_).subspan(start_);
  std::uint32_t length = 0;
  if (rest.size() < sizeof length) return Payload();
  std::memcpy(&length, rest.data(), sizeof length);
  if (length > kMaxFrameBytes) {
    error_ = base::Status(
        base::Code::kDataLoss,
        fmt::format("control frame of {} bytes, expected at most {}", length, kMaxFrameBytes));
    return error_;
  }
  if (rest.size() < sizeof length + length) return Payload();
  start_ += sizeof length + length;
  return Payload(rest.subspan(sizeof length, length));
}

base::Result<std::optional<Message>> FrameReader::next() {
  REGROUP_ASSIGN_OR_RETURN(const auto payload, next_payload());
  if (!payload.has_value()) return std::optional<Message>();
  auto message = decode(*payload);
  if (!message.ok()) return error_ = message.status(), error_;
  return std::optional<Message>(std::move(*message));
}

}  // namespace regroup::proto
