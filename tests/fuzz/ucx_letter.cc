// Any bytes as the head of a letter, as anybody may send it to a member's port: refused, or of a rank that
// there is, in a call that can be told of, with no more data than that has. The input is the nonce of whom it
// is for, what the letter has, the ranks, and the head.
#include "collective/ucx/letter.h"

#include <cstdint>
#include <cstring>

#include "tests/fuzz/require.h"

using namespace regroup::collective;
using regroup::fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  struct {
    std::uint64_t nonce;
    std::uint32_t bytes, ranks;
  } said{};
  if (size < sizeof said) return 0;
  std::memcpy(&said, data, sizeof said);
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(sizeof said);
  const auto head = read_head(bytes, said.bytes, said.ranks, said.nonce);
  if (!head) return 0;
  require(head->nonce == said.nonce && bytes.size() == sizeof *head &&
          head->key.kind <= LetterKind::kFailure);
  require(head->key.from >= 0 && static_cast<std::uint32_t>(head->key.from) < said.ranks);
  require(!describe(head->call).empty());
  if (head->key.kind == LetterKind::kMessage) require(said.bytes == 0 || said.bytes == head->call.bytes);
  return 0;
}
