// TCP sockets between hosts: addresses as text, connecting, listening.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "base/tcp_peer.h"

namespace regroup::transport {

using Endpoint = boost::asio::ip::tcp::endpoint;

// Parses "10.0.0.1:4711,[fe80::1]:4711": the addresses of one listener. No names, since resolving
// blocks. kInvalidArgument names the invalid part.
[[nodiscard]] base::Result<std::vector<Endpoint>> parse_endpoints(std::string_view text);
[[nodiscard]] std::string to_string(const std::vector<Endpoint>& endpoints);
// The addresses of this host's active interfaces, with `port`; loopback last.
[[nodiscard]] base::Result<std::vector<Endpoint>> own_endpoints(std::uint16_t port);

// Connects to the first of `endpoints` that accepts within `limit`, as Happy Eyeballs (RFC 8305):
// tries them in order, the next one as soon as one has failed or a quarter of a second has passed
// (sooner if there are many: all are tried within half of `limit`); loopback only if all others
// have failed. `done` is called once, from the loop; its error names each address: kPeerLost if all
// refuse, so no process listens, else kUnavailable. The socket is non-blocking.
void dial(boost::asio::io_context& loop, std::vector<Endpoint> endpoints, base::Duration limit,
          std::function<void(base::Result<base::Fd>)> done);

// A non-blocking listening socket on all IPv4 and, if the host has it, IPv6 addresses. `port` 0:
// any free port.
[[nodiscard]] base::Result<base::Fd> listen_tcp(std::uint16_t port);
[[nodiscard]] base::Result<std::uint16_t> port_of(const base::Fd& socket);
using base::check_alive, base::keep_alive, base::peer_of;

}  // namespace regroup::transport
