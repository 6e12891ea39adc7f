// TCP sockets between hosts: addresses as text, connecting, listening, and whether a connection still lives.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.h"
#include "core/fd.h"
#include "core/status.h"

namespace regroup::launcher {

using Endpoint = boost::asio::ip::tcp::endpoint;

// "10.0.0.1:4711,[fe80::1]:4711": addresses under which one listener can be reached. No names: resolving
// blocks. kInvalidArgument names the part that is none.
[[nodiscard]] core::Result<std::vector<Endpoint>> parse_endpoints(std::string_view text);
[[nodiscard]] std::string to_string(const std::vector<Endpoint>& endpoints);
// With `port`, the addresses of this host's interfaces that are up: others first, loopback last.
[[nodiscard]] core::Result<std::vector<Endpoint>> own_endpoints(std::uint16_t port);

// Connects to the first of `endpoints` that accepts within `limit`. They are tried in their order, the next
// one as soon as one has failed, or beside it after a quarter of a second (sooner if they are many: all are
// tried in half of `limit`); those of loopback only if all others have failed. `done` is called once, from
// the loop; its error says of each address why not: kPeerLost if all refuse, so that nobody listens, else
// kUnavailable. The socket does not block.
void dial(boost::asio::io_context& loop, std::vector<Endpoint> endpoints, core::Duration limit,
          std::function<void(core::Result<core::Fd>)> done);

// A listening socket that does not block, on all addresses of IPv4 and, where the host has it, IPv6. `port`
// 0: any that is free.
[[nodiscard]] core::Result<core::Fd> listen_tcp(std::uint16_t port);
[[nodiscard]] core::Result<std::uint16_t> port_of(const core::Fd& socket);
// "10.0.0.2:4711", or "an unknown address".
[[nodiscard]] std::string peer_of(int socket);

// Sends at once instead of gathering, and probes a silent peer, so that one whose host has gone is noticed
// within `silence` though nothing is sent. Does not use TCP_USER_TIMEOUT: it ends connections to peers that
// live but have stopped reading.
[[nodiscard]] core::Status prepare(int socket, core::Duration silence);
// kPeerLost: what was sent has found no acknowledgement for `silence`, or the connection is broken. A peer
// that acknowledges but does not read is well.
[[nodiscard]] core::Status check_alive(int socket, core::Duration silence);

}  // namespace regroup::launcher
