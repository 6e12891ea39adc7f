// The address that a member publishes: the addresses of its host with the port of its listener, the
// nonce by which it recognises other members, and, once it has failed because the ranks disagree,
// the reason. Encoded as opaque bytes that only members receive. Free functions, any thread.
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

#include "base/status.h"

namespace regroup::collective::ucx {

struct PeerAddress {
  std::uint16_t family = 0;  // AF_INET or AF_INET6
  std::uint16_t port = 0;    // host's byte order
  std::uint32_t prefix = 0;  // length of the network part in bits
  std::array<std::uint8_t, 16> address{};

  bool operator==(const PeerAddress&) const = default;
};

// The addresses of this host, those of the fastest network card first. All of one family: IPv4 if
// the host has any. Loopback only if the host has no other address.
[[nodiscard]] std::vector<PeerAddress> local_addresses();
// The addresses of the interfaces that `devices` names as UCX_NET_DEVICES does ("^eth0": of all
// others). Empty if no named interface has an address: `devices` is empty or names RDMA devices.
[[nodiscard]] std::vector<PeerAddress> addresses_of_devices(std::string_view devices);
struct PortRange {
  // Both 0: any port.
  std::uint16_t first = 0;
  std::uint16_t last = 0;
};
// Parses UCX_TCP_PORT_RANGE: "A-B"; "0" and "" mean any port. Else kInvalidArgument.
[[nodiscard]] base::Result<PortRange> read_port_range(std::string_view text);

// Encodes an address. `nonce`: the member's in this generation; the header of each message to it
// must have this nonce. `failure_reason`: why all operations of the member have failed; "" while
// they have not.
[[nodiscard]] std::vector<std::byte> encode(std::uint64_t nonce,
                                            std::span<const PeerAddress> addresses,
                                            std::string_view failure_reason = {});
// Decode the result of encode(). For other bytes all three return 0 or empty.
[[nodiscard]] std::uint64_t nonce_in(std::span<const std::byte> bytes);
[[nodiscard]] std::vector<PeerAddress> decode(std::span<const std::byte> bytes);
[[nodiscard]] std::string failure_reason_in(std::span<const std::byte> bytes);

// Sorts `theirs`: first addresses that share a network with one of `mine`; last addresses that are
// also in `mine`, because bridges of containers and virtual machines have the same address on every
// host.
[[nodiscard]] std::vector<PeerAddress> nearest_first(std::vector<PeerAddress> theirs,
                                                     std::span<const PeerAddress> mine);

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
};
[[nodiscard]] SocketAddress to_socket_address(const PeerAddress& address);

}  // namespace regroup::collective::ucx
