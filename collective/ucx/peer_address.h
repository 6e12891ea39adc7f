// Where a member can be reached, and how it knows that a member calls: the addresses of its host, the port of
// its worker, a nonce; as the bytes that members give each other, which nobody else sees. Who has left since
// the ranks disagree says so there.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace regroup::collective {

struct PeerAddress {
  std::uint16_t family = 0;  // AF_INET or AF_INET6
  std::uint16_t port = 0;    // host's byte order
  std::uint32_t prefix = 0;  // bits of the network
  std::array<std::uint8_t, 16> address{};

  bool operator==(const PeerAddress&) const = default;
};

// Addresses of this host, those of the fastest network card first, all of one family: IPv4 if there is any;
// loopback only if there is nothing else.
[[nodiscard]] std::vector<PeerAddress> local_addresses();
// Those of the interfaces that `devices` names, or behind a ^ of all others, as in UCX_NET_DEVICES. Nothing
// if it names none that has an address: it is empty, or names RDMA devices.
[[nodiscard]] std::vector<PeerAddress> addresses_of_devices(std::string_view devices);
// UCX_TCP_PORT_RANGE: "A-B", 0 or nothing; {0, 0} of the latter. kInvalidArgument of what is no range.
struct PortRange {
  std::uint16_t first = 0, last = 0;
};
[[nodiscard]] core::Result<PortRange> read_port_range(std::string_view text);

// `nonce`: of the member in this generation; messages to it bear it. `failure_reason`: why all operations of
// the member have failed; empty as long as they have not.
[[nodiscard]] std::vector<std::byte> encode(std::uint64_t nonce, std::span<const PeerAddress> addresses,
                                            std::string_view failure_reason = {});
// Of what encode() made; empty or 0 if it is nothing of the kind, all.
[[nodiscard]] std::uint64_t nonce_in(std::span<const std::byte> bytes);
[[nodiscard]] std::vector<PeerAddress> decode(std::span<const std::byte> bytes);
[[nodiscard]] std::string failure_reason_in(std::span<const std::byte> bytes);

// Those of `theirs` that share a network with one of `mine` first. Those that are mine, too, last: bridges of
// containers and virtual machines have the same address on each host.
[[nodiscard]] std::vector<PeerAddress> nearest_first(std::vector<PeerAddress> theirs,
                                                     std::span<const PeerAddress> mine);

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
};
[[nodiscard]] SocketAddress to_socket_address(const PeerAddress& address);

}  // namespace regroup::collective
