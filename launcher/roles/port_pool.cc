// Fixed ports are taken first, so that no port of ours is one of them by chance.
#include "launcher/roles/port_pool.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <set>

namespace regroup::launcher {
namespace {

constexpr const char* kHost = "127.0.0.1";

// Holds `port`, or any one for 0, and returns it. With SO_REUSEADDR a second socket of our own could bind the
// same port, so the caller keeps fixed ones apart.
core::Result<std::uint16_t> hold(PortPool& pool, std::uint16_t port) {
  core::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (!socket.valid() || ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(socket.get(), generic, size) != 0 || ::getsockname(socket.get(), generic, &size) != 0) {
    return core::system_error("bind", fmt::format("{}:{}", kHost, port), errno);
  }
  pool.sockets.push_back(std::move(socket));
  return ntohs(address.sin_port);
}

core::Status hold_labelled(PortPool& pool, const Role& role, const Task& task, MemberPorts& member,
                           std::set<std::uint64_t>& fixed) {
  member.labelled.resize(role.ports.size());
  for (std::size_t i = 0; i < role.ports.size(); ++i) {
    const PortRequest& request = role.ports[i];
    if (request.begin_at == 0) continue;
    for (std::uint32_t n = 0; n < request.count; ++n) {
      const std::uint64_t wanted = request.begin_at + std::uint64_t{task.index} * request.count + n;
      if (wanted > 65535 || !fixed.insert(wanted).second) {
        return core::invalid_argument(fmt::format("role {}, ports {}: port {} {}", role.name, request.label,
                                                  wanted,
                                                  wanted > 65535 ? "is above 65535" : "is asked for twice"));
      }
      auto port = hold(pool, static_cast<std::uint16_t>(wanted));
      if (!port.ok()) return port.status();
      member.labelled[i].push_back(*port);
    }
  }
  return {};
}

core::Status hold_any(PortPool& pool, const Role& role, MemberPorts& member) {
  auto port = hold(pool, 0);
  if (!port.ok()) return port.status();
  member.host = kHost;
  member.port = *port;
  for (std::size_t i = 0; i < role.ports.size(); ++i) {
    while (member.labelled[i].size() < role.ports[i].count) {
      auto one = hold(pool, 0);
      if (!one.ok()) return one.status();
      member.labelled[i].push_back(*one);
    }
  }
  return {};
}

}  // namespace

core::Result<PortPool> hold_ports(const std::vector<Role>& roles) {
  const std::vector<Task> tasks = tasks_of(roles);
  PortPool pool;
  pool.members.resize(tasks.size());
  std::set<std::uint64_t> fixed;
  for (std::size_t rank = 0; rank < tasks.size(); ++rank) {
    const Role& role = roles[tasks[rank].role];
    REGROUP_RETURN_IF_ERROR(hold_labelled(pool, role, tasks[rank], pool.members[rank], fixed));
  }
  for (std::size_t rank = 0; rank < tasks.size(); ++rank) {
    REGROUP_RETURN_IF_ERROR(hold_any(pool, roles[tasks[rank].role], pool.members[rank]));
  }
  auto coordinator = hold(pool, 0);
  if (!coordinator.ok()) return coordinator.status();
  pool.coordinator_port = *coordinator;
  return pool;
}

}  // namespace regroup::launcher
