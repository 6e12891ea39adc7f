// Fixed ports are taken first, so that no port of ours is one of them by chance.
#include "launcher/job/port_pool.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "base/json_input.h"

namespace regroup::job {
namespace {

sockaddr_in address_of(bool any, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(any ? INADDR_ANY : INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

// 0, or the errno. With SO_REUSEADDR a second socket of our own could bind the same port, so the
// caller keeps fixed ones apart.
int bind_reusably(base::Fd& socket, sockaddr_in address) {
  socket.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (!socket.valid() ||
      ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    return errno;
  }
  return 0;
}

// A server may listen on all addresses, which an older connection from another address of this host
// with the same port forbids. Once a port is held the kernel gives it to no new connection.
bool can_be_served(std::uint16_t port) {
  base::Fd probe;
  return bind_reusably(probe, address_of(/*any=*/true, port)) == 0;
}

// `port` 0: any that can be served.
base::Result<std::uint16_t> hold(std::uint16_t port, std::string_view of, base::Fd& socket) {
  constexpr int kCandidates = 64;
  std::vector<base::Fd> refused;  // held meanwhile, so that the kernel offers others
  for (int i = 0;; ++i) {
    sockaddr_in address = address_of(of.empty(), port);
    socklen_t size = sizeof address;
    int error = bind_reusably(socket, address);
    if (error == 0 &&
        ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      error = errno;
    }
    if (error != 0) {
      return base::system_error("bind", fmt::format("{}:{}", of.empty() ? "0.0.0.0" : of, port),
                                error);
    }
    const std::uint16_t held = ntohs(address.sin_port);
    if (port != 0 || i == kCandidates || can_be_served(held)) return held;
    refused.push_back(std::move(socket));
  }
}

// Calls `port_of(rank, role, label, wanted)` for each port of each member in turn, wanted 0 being
// any one, and keeps what it returns.
template <class PortOf>
void for_each_port(const std::vector<Role>& roles, std::vector<MemberPorts>& members,
                   PortOf port_of) {
  const std::vector<Task> tasks = tasks_of(roles);
  members.resize(tasks.size());
  for (std::size_t rank = 0; rank < tasks.size(); ++rank) {
    const Role& role = roles[tasks[rank].role];
    members[rank].port = port_of(rank, role, std::string(), 0);
    members[rank].labelled.assign(role.ports.size(), {});
    for (std::size_t i = 0; i < role.ports.size(); ++i) {
      const PortRequest& request = role.ports[i];
      for (std::uint32_t n = 0; n < request.count; ++n) {
        const std::uint64_t wanted =
            request.begin_at == 0
                ? 0
                : request.begin_at + std::uint64_t{tasks[rank].index} * request.count + n;
        members[rank].labelled[i].push_back(port_of(rank, role, request.label, wanted));
      }
    }
  }
}

std::uint32_t host_at(const std::vector<std::uint32_t>& host_of, std::size_t rank) {
  return host_of.empty() ? 0 : host_of.at(rank);
}

}  // namespace

base::Result<HeldPorts> hold_ports(const std::vector<std::uint16_t>& wanted,
                                   std::string_view address) {
  HeldPorts out;
  out.sockets.resize(wanted.size());
  out.numbers.resize(wanted.size());
  for (const bool fixed : {true, false}) {
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if ((wanted[i] != 0) != fixed) continue;
      REGROUP_ASSIGN_OR_RETURN(auto port, hold(wanted[i], address, out.sockets[i]));
      out.numbers[i] = port;
    }
  }
  return out;
}

base::Result<std::vector<std::vector<std::uint16_t>>> ports_wanted(
    const std::vector<Role>& roles, const std::vector<std::uint32_t>& host_of, std::size_t hosts) {
  std::vector<std::vector<std::uint16_t>> wanted(hosts);
  std::vector<std::set<std::uint64_t>> fixed(hosts);
  std::vector<MemberPorts> members;
  base::Status status;
  const auto note = [&](std::size_t rank, const Role& role, const std::string& label,
                        std::uint64_t port) {
    const std::uint32_t host = host_at(host_of, rank);
    const bool taken = port != 0 && !fixed.at(host).insert(port).second;
    if (status.ok() && (port > 65535 || taken))
      status = base::invalid_argument(
          fmt::format("role {}, ports {}: port {} {}", role.name, label, port,
                      port > 65535 ? "is above 65535" : "is requested twice"));
    wanted.at(host).push_back(static_cast<std::uint16_t>(port));
    return std::uint16_t{0};
  };
  for_each_port(roles, members, note);
  if (!status.ok()) return status;
  wanted.at(host_at(host_of, 0)).push_back(0);
  return wanted;
}

void give_ports(Cluster& cluster, const std::vector<std::uint32_t>& host_of,
                const std::vector<std::vector<std::uint16_t>>& numbers,
                const std::vector<std::string>& addresses) {
  std::vector<std::size_t> given(numbers.size());
  const auto next = [&](std::uint32_t host) { return numbers.at(host).at(given[host]++); };
  const auto give = [&](std::size_t rank, const Role&, const std::string&, std::uint64_t) {
    return next(host_at(host_of, rank));
  };
  for_each_port(cluster.roles, cluster.members, give);
  cluster.coordinator_port = next(host_at(host_of, 0));
  for (std::size_t rank = 0; rank < cluster.members.size(); ++rank)
    cluster.members[rank].host = addresses.at(host_at(host_of, rank));
}

std::string ports_to_json(const std::vector<std::uint16_t>& numbers) {
  return nlohmann::json{{"ports", numbers}}.dump();
}

base::Result<std::vector<std::uint16_t>> ports_from_json(std::string_view text) {
  const base::Status bad(base::Code::kDataLoss, "expected a list of ports");
  const auto json = base::parse_json(text);
  if (!json.is_object() || !json.contains("ports") || !json["ports"].is_array()) return bad;
  std::vector<std::uint16_t> out;
  for (const auto& port : json["ports"]) {
    if (!port.is_number_unsigned() || port.get<std::uint64_t>() == 0 ||
        port.get<std::uint64_t>() > 65535)
      return bad;
    out.push_back(port.get<std::uint16_t>());
  }
  return out;
}

}  // namespace regroup::job
