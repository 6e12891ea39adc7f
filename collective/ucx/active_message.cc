// The checks that a header must pass before any other code uses it.
#include "collective/ucx/active_message.h"

#include <cstring>

namespace regroup::collective::ucx {
namespace {

// A sender whose point-to-point message does not fit the receiver's buffer sends it without data;
// the size is in its signature.
bool may_have(const MessageHeader& header, std::size_t bytes) {
  switch (header.key.kind) {
    case MessageKind::kData:
    case MessageKind::kFailure:
    case MessageKind::kNote:
      return true;
    case MessageKind::kPointToPoint:
      return bytes == 0 || bytes == header.signature.bytes;
    default:
      return bytes == 0;
  }
}

}  // namespace

std::optional<MessageHeader> parse_header(std::span<const std::byte> header, std::size_t bytes,
                                          std::size_t ranks, std::uint64_t nonce) {
  MessageHeader out;
  if (header.size() != sizeof out) return std::nullopt;
  std::memcpy(&out, header.data(), sizeof out);
  const bool is_valid = out.nonce == nonce && out.key.kind <= MessageKind::kNote &&
                        out.key.from >= 0 && static_cast<std::size_t>(out.key.from) < ranks &&
                        is_valid_signature(out.signature) && may_have(out, bytes);
  return is_valid ? std::optional(out) : std::nullopt;
}

}  // namespace regroup::collective::ucx
