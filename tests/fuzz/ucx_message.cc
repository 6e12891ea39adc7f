// Any bytes as the header of a message, as anybody may send it to the port of a member: rejected,
// or from a rank of the World, with an operation that can be described, and with no more data than
// its kind allows. The input is the nonce of the receiver, the size of the data, the number of
// ranks, and the header.
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
  } input{};
  if (size < sizeof input) return 0;
  std::memcpy(&input, data, sizeof input);
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(sizeof input);
  const auto header = ucx::parse_header(bytes, input.bytes, input.ranks, input.nonce);
  if (!header) return 0;
  require(header->nonce == input.nonce && bytes.size() == sizeof *header &&
          header->key.kind <= ucx::MessageKind::kNote);
  require(header->key.from >= 0 && static_cast<std::uint32_t>(header->key.from) < input.ranks);
  require(!describe(header->signature).empty());
  if (header->key.kind == ucx::MessageKind::kPointToPoint)
    require(input.bytes == 0 || input.bytes == header->signature.bytes);
  return 0;
}
