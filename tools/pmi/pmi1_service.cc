// Closes the connection of a process that breaks the protocol, closes its end, or does not read its
// answers. The agent, not this server, finds out when a process ends.
#include "tools/pmi/pmi1_service.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "launcher/pmi/init_watch.h"
#include "launcher/process/app.h"
#include "tools/pmi/layout.h"

namespace regroup::pmi {
namespace {

constexpr std::size_t kMostUnsent = 4 << 20;  // bytes of answers that a client leaves unread

}  // namespace

struct Pmi1Service::Connection {
  Connection(boost::asio::io_context& loop, base::Fd fd, ProcId owner)
      : socket(loop, fd.release()), process(owner) {}
  boost::asio::posix::stream_descriptor socket;
  ProcId process;
  Pmi1Reader reader;
  std::string unsent;
  bool writing = false;  // waits until there is room in the socket
  bool over = false;

  // Cancels the waits that keep this object alive.
  void end() {
    over = true;
    socket.cancel();
  }
};

Pmi1Service::Pmi1Service(boost::asio::io_context& loop, std::string job, Pmi1Events events)
    : loop_(loop), job_(std::move(job)), events_(std::move(events)) {}

Pmi1Service::~Pmi1Service() = default;

void Pmi1Service::open_space(const OpenSpace& space, KeyValues values) {
  const Layout layout(space, "");
  const std::uint32_t size = layout.size();
  for (const std::uint32_t rank : layout.here())
    local_[{space.space, rank}] = {layout.local_rank(rank),
                                   static_cast<std::uint32_t>(layout.here().size())};
  GroupOptions options{fmt::format("kvs_{}_{}", job_, space.space), space.app_sizes,
                       std::max(space.slots, size), layout.mapping(), std::move(values)};
  options.here = layout.here();
  options.names_elsewhere = space.host != 0;
  options.space = space.space;
  auto& hosts = hosts_[space.space];
  hosts.clear();
  for (const Layout::Host& host : layout.hosts()) hosts.push_back(host.number);
  groups_.erase(space.space);
  groups_.emplace(space.space, Pmi1Group(std::move(options), names_));
}

base::Result<Pmi1Service::Client> Pmi1Service::connect(ProcId process, bool spawned) {
  std::array<int, 2> fds{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) != 0) {
    return base::system_error("socketpair",
                              fmt::format("PMI-1 connection of rank {}", process.rank), errno);
  }
  Client client{base::Fd(fds[1]), {}};
  auto connection = std::make_shared<Connection>(loop_, base::Fd(fds[0]), process);
  connections_[process] = connection;
  wait(connection);
  client.environment = {
      fmt::format("PMI_FD={}", process::kInheritedFd),
      fmt::format("PMI_RANK={}", process.rank),
      fmt::format("PMI_SIZE={}", groups_.at(process.space).size()),
      fmt::format("MPI_LOCALRANKID={}", local_.at(process).rank),
      fmt::format("MPI_LOCALNRANKS={}", local_.at(process).size),
  };
  if (spawned) client.environment.emplace_back("PMI_SPAWNED=1");
  return client;
}

void Pmi1Service::wait(const std::shared_ptr<Connection>& connection) {
  connection->socket.async_wait(connection->socket.wait_read,
                                [this, connection](const boost::system::error_code& error) {
                                  if (error) return;
                                  if (receive(*connection)) return wait(connection);
                                  const auto found = connections_.find(connection->process);
                                  if (found == connections_.end() || found->second != connection)
                                    return;
                                  connections_.erase(found);
                                });
}

// Returns false if the connection has ended.
bool Pmi1Service::receive(Connection& connection) {
  std::array<char, 4096> bytes;
  const ssize_t count =
      ::recv(connection.socket.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  if (count == 0) return false;
  connection.reader.append({bytes.data(), static_cast<std::size_t>(count)});
  for (;;) {
    const auto command = connection.reader.next();
    if (!command.ok()) return false;
    if (!command->has_value()) return true;
    const auto group = groups_.find(connection.process.space);
    if (group == groups_.end()) return false;
    act(connection.process.space, group->second.on_command(connection.process.rank, **command));
    if (connection.over) return false;
  }
}

void Pmi1Service::act(std::uint32_t space, const Effects& effects) {
  for (const Effect& effect : effects) {
    std::visit([&](const auto& what) { act(space, what); }, effect);
  }
}

void Pmi1Service::act(std::uint32_t space, const Answer& answer) {
  const auto found = connections_.find({space, answer.rank});
  if (found == connections_.end()) return;
  const std::shared_ptr<Connection> connection = found->second;
  connection->unsent += answer.text;
  if (connection->unsent.size() > kMostUnsent) {
    connections_.erase(found);
    connection->end();
  } else if (!connection->writing) {
    write(connection);
  }
}

void Pmi1Service::write(const std::shared_ptr<Connection>& connection) {
  std::string& unsent = connection->unsent;
  while (!unsent.empty()) {
    const ssize_t count = ::send(connection->socket.native_handle(), unsent.data(), unsent.size(),
                                 MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count >= 0) {
      unsent.erase(0, static_cast<std::size_t>(count));
    } else if (errno == EAGAIN) {
      connection->writing = true;
      return connection->socket.async_wait(
          connection->socket.wait_write,
          [this, connection](const boost::system::error_code& error) {
            if (error) return;
            connection->writing = false;
            write(connection);
          });
    } else if (errno != EINTR) {
      unsent.clear();  // receive() will see the end of the connection
    }
  }
}

// The barrier is answered once the processes of all hosts have entered it.
void Pmi1Service::act(std::uint32_t space, const EnterBarrier& barrier) {
  const auto* begin = reinterpret_cast<const std::byte*>(barrier.values.data());
  events_.gather(
      space, fmt::format("{} of space {}", kPmi1Barrier, space), hosts_.at(space),
      {begin, begin + barrier.values.size()}, [this, space](const std::vector<std::byte>& all) {
        const auto group = groups_.find(space);
        if (group == groups_.end()) return;
        act(space,
            group->second.barrier_done({reinterpret_cast<const char*>(all.data()), all.size()}));
      });
}

void Pmi1Service::spawned(ProcId parent, const std::string& error) {
  const auto group = groups_.find(parent.space);
  if (group != groups_.end()) act(parent.space, group->second.spawned(parent.rank, error));
}

void Pmi1Service::close_space(std::uint32_t space) {
  std::erase_if(connections_, [space](const auto& entry) {
    if (entry.first.space == space) entry.second->end();
    return entry.first.space == space;
  });
  groups_.erase(space);
  hosts_.erase(space);
  std::erase_if(names_, [space](const auto& entry) { return entry.second.space == space; });
  std::erase_if(local_, [space](const auto& entry) { return entry.first.space == space; });
}

}  // namespace regroup::pmi
