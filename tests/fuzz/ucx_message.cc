// Any bytes as the header of a message, as anybody may send it to a member's port: refused, or of a rank that
// there is, in a call that can be told of, with no more data than that has. The input is the nonce of whom it
// is for, what the message has, the ranks, and the header.
#include "collective/ucx/active_message.h"

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
  const auto header = parse_header(bytes, said.bytes, said.ranks, said.nonce);
  if (!header) return 0;
  require(header->nonce == said.nonce && bytes.size() == sizeof *header &&
          header->key.kind <= MessageKind::kFailure);
  require(header->key.from >= 0 && static_cast<std::uint32_t>(header->key.from) < said.ranks);
  require(!describe(header->call).empty());
  if (header->key.kind == MessageKind::kPointToPoint)
    require(said.bytes == 0 || said.bytes == header->call.bytes);
  return 0;
}
