// What is believed of a letter before anything else looks at it.
#include "collective/ucx/letter.h"

#include <cstring>

namespace regroup::collective {
namespace {

// Of a message that does not fit only the size comes, in its call.
bool may_have(const LetterHead& head, std::size_t bytes) {
  switch (head.key.kind) {
    case LetterKind::kData:
    case LetterKind::kFailure:
      return true;
    case LetterKind::kMessage:
      return bytes == 0 || bytes == head.call.bytes;
    default:
      return bytes == 0;
  }
}

}  // namespace

std::optional<LetterHead> read_head(std::span<const std::byte> head, std::size_t bytes, std::size_t ranks,
                                    std::uint64_t nonce) {
  LetterHead out;
  if (head.size() != sizeof out) return std::nullopt;
  std::memcpy(&out, head.data(), sizeof out);
  const bool is_ours = out.nonce == nonce && out.key.kind <= LetterKind::kFailure && out.key.from >= 0 &&
                       static_cast<std::size_t>(out.key.from) < ranks && is_valid_signature(out.call) &&
                       may_have(out, bytes);
  return is_ours ? std::optional(out) : std::nullopt;
}

}  // namespace regroup::collective
