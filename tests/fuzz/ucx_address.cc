// Any bytes as the address of another member: rejected, or decoded to addresses that can be
// connected to and that encode to the same bytes.
#include "collective/ucx/peer_address.h"

#include <algorithm>
#include <cstdint>

#include "tests/fuzz/require.h"

using namespace regroup::collective;
using regroup::fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const std::vector<ucx::PeerAddress> addresses = ucx::decode(bytes);
  const std::string reason = ucx::failure_reason_in(bytes);
  require(reason.size() <= size);
  if (addresses.empty()) return 0;
  require(std::ranges::equal(ucx::encode(ucx::nonce_in(bytes), addresses, reason), bytes));
  const std::vector<ucx::PeerAddress> mine = {{AF_INET, 4000, 24, {10, 0, 0, 1}},
                                              {AF_INET6, 4000, 64, {0xfd}}};
  const std::vector<ucx::PeerAddress> sorted = ucx::nearest_first(addresses, mine);
  require(std::ranges::is_permutation(sorted, addresses));
  // With arbitrary prefixes.
  require(ucx::nearest_first(addresses, addresses).size() == addresses.size());
  for (const ucx::PeerAddress& peer : sorted) {
    const ucx::SocketAddress address = ucx::to_socket_address(peer);
    require(address.storage.ss_family == peer.family && address.bytes <= sizeof address.storage);
  }
  return 0;
}
