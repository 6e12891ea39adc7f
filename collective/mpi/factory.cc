// Starts the carrier process of a host, which lives as long as a member of that host is connected
// to it.
#include "collective/mpi/factory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "base/status.h"
#include "base/unix_address.h"
#include "collective/mpi/client.h"
#include "collective/mpi/library.h"

namespace regroup::collective::mpi {
namespace {

using base::Result;

constexpr int kListener = 3;  // the descriptor on which the carrier process listens
constexpr int kMostWaiting = 1024;

// Numbers of the hosts, in the order of the ranks.
std::vector<int> hosts_of(const proto::World& world) {
  std::vector<int> out;
  std::vector<proto::NodeId> nodes;
  for (const proto::WorldMember& member : world.members) {
    const auto known = std::ranges::find(nodes, member.slot_id.node);
    out.push_back(static_cast<int>(known - nodes.begin()));
    if (known == nodes.end()) nodes.push_back(member.slot_id.node);
  }
  return out;
}

// The arena is the same for all members of a host, and another one for each job.
Result<std::string> socket_name(const shmem::Arena& arena, proto::Generation generation) {
  struct stat file {};
  if (::fstat(arena.memfd(), &file) != 0) return base::system_error("fstat", "the arena", errno);
  return fmt::format("regroup-mpi/{}.{}/{}", file.st_dev, file.st_ino, generation);
}

Result<base::Fd> listen_at(const std::string& name) {
  REGROUP_ASSIGN_OR_RETURN(const auto address, base::abstract_address(name));
  base::Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener.valid() || ::bind(listener.get(), address.get(), address.size) != 0 ||
      ::listen(listener.get(), kMostWaiting) != 0)
    return base::system_error("bind", name, errno);
  return listener;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

// Looks for the library in the file system.
std::vector<std::string> words_of(const CarrierSettings& settings, proto::Generation generation,
                                  int host, const std::vector<int>& host_of) {
  const auto library = find_library(settings.place, settings.path);
  return {"regroup-mpi",
          settings.job,
          std::to_string(generation),
          settings.folder,
          library.ok() ? *library : "",
          std::to_string(host),
          fmt::format("{}", fmt::join(host_of, ","))};
}

// The process forks at once, and its child is the carrier: this process, whose other children are
// the user's, has none to reap later.
base::Status start(const CarrierSettings& settings, const base::Fd& listener,
                   std::vector<std::string> words) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_adddup2(&files, listener.get(), kListener);
  ::posix_spawn_file_actions_addclosefrom_np(&files, kListener + 1);
  sigset_t all, none;
  ::sigfillset(&all);
  ::sigemptyset(&none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  std::vector<std::string> environment = settings.environment;
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, settings.program.c_str(), &files, &attributes,
                                  pointers(words).data(), pointers(environment).data());
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&files);
  if (error != 0) return base::system_error("posix_spawn", settings.program, error);
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  return {};
}

}  // namespace

std::string why_not_viable(const CarrierSettings& settings) {
  if (settings.program.empty() || ::access(settings.program.c_str(), X_OK) != 0)
    return "no regroup-mpi beside regroup";
  const auto library = find_library(settings.place, settings.path);
  return library.ok() ? "" : library.status().message();
}

Result<std::unique_ptr<Carrier>> open_carrier(const CarrierSettings& settings,
                                              const shmem::Arena& arena, const proto::World& world,
                                              proto::SlotId self,
                                              std::function<void(const std::string&)> on_lost) {
  const int rank = world.rank_of(self);
  std::vector<int> host_of = hosts_of(world);
  REGROUP_ASSIGN_OR_RETURN(std::string name, socket_name(arena, world.generation));
  const int host = host_of.at(static_cast<std::size_t>(rank));
  const bool leads = std::ranges::find(host_of, host) - host_of.begin() == rank;
  std::vector<std::string> words;
  if (leads) words = words_of(settings, world.generation, host, host_of);
  auto client = std::make_unique<Client>(ClientOptions{.rank = rank,
                                                       .host_of = std::move(host_of),
                                                       .socket = name,
                                                       .limits = settings.limits,
                                                       .on_lost = std::move(on_lost)});
  if (leads) {
    auto listener = listen_at(name);
    base::Status started = listener.status();
    if (started.ok()) started = start(settings, *listener, std::move(words));
    if (!started.ok()) client->fail(started.message());
    // Connects at once: the process ends if no member does.
    static_cast<void>(client->progress());
  }
  return std::unique_ptr<Carrier>(std::move(client));
}

}  // namespace regroup::collective::mpi
