// The arena is a memfd; the other ranks of the host open it by its name below /proc, which needs no
// socket. That works for processes of one user in one PID namespace.
#include "collective/group/arena_exchange.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <map>
#include <utility>

#include "base/fd.h"
#include "base/values.h"
#include "shmem/arena_tail.h"

namespace regroup::collective::group {
namespace {

std::string key_of_rank(int rank) { return fmt::format("process/{}", rank); }

base::Result<Process> parse_process(const std::string& text, int rank) {
  Process out;
  const std::size_t space = text.find(' ');
  std::uint32_t pid = 0;
  if (space == std::string::npos ||
      !base::read_number(std::string_view(text).substr(0, space), pid) || pid == 0)
    return base::data_loss(
        fmt::format("group: rank {} published '{}', expected PID HOST", rank, text));
  out.pid = static_cast<pid_t>(pid);
  out.host = text.substr(space + 1);
  return out;
}

// The tail is mapped and lengthens a file, so limits on address space and on files would be met; 0:
// there is such a limit.
std::uint64_t tail_bytes(std::uint64_t slots) {
  // Of address space, for all ranks of a host: a process may be in hundreds of groups.
  constexpr std::uint64_t kMost = 1ULL << 38;
  for (const auto resource : {RLIMIT_AS, RLIMIT_FSIZE}) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur != RLIM_INFINITY) return 0;
  }
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t memory = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * page;
  return std::min(memory, kMost) / slots / page * page * slots;
}

}  // namespace

base::Result<Process> this_process(const std::string& host) {
  if (!host.empty()) return Process{host, ::getpid()};
  std::string boot;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  if (!std::getline(file, boot) || boot.empty())
    return base::unavailable("group: cannot read /proc/sys/kernel/random/boot_id");
  struct stat pid_namespace {};
  if (::stat("/proc/self/ns/pid", &pid_namespace) != 0)
    return base::system_error("stat", "/proc/self/ns/pid", errno);
  return Process{fmt::format("{}/{}/{}", boot, pid_namespace.st_ino, ::geteuid()), ::getpid()};
}

base::Result<std::vector<Process>> exchange_processes(Store& store, int rank, int size,
                                                      const Process& own,
                                                      base::TimePoint deadline) {
  REGROUP_RETURN_IF_ERROR(store.set(key_of_rank(rank), fmt::format("{} {}", own.pid, own.host)));
  std::vector<Process> out;
  std::vector<int> missing;
  for (int r = 0; r < size; ++r) {
    // After the first that is missing the others are only looked up, so that all are named.
    const base::TimePoint until =
        missing.empty() ? deadline : base::SystemClock().now() + std::chrono::milliseconds(1);
    auto text = store.get(key_of_rank(r), until);
    if (text.code() == base::Code::kDeadlineExceeded) {
      missing.push_back(r);
      continue;
    }
    if (!text.ok()) return text.status();
    REGROUP_ASSIGN_OR_RETURN(auto process, parse_process(*text, r));
    out.push_back(std::move(process));
  }
  if (!missing.empty())
    return base::deadline_exceeded(fmt::format(
        "rank {} of {}: the group was not formed, since {} {} not come", rank, size,
        fmt::format("{} {}", missing.size() == 1 ? "rank" : "ranks", fmt::join(missing, ", ")),
        missing.size() == 1 ? "has" : "have"));
  return out;
}

base::Result<proto::World> world_of(const std::vector<Process>& processes) {
  proto::World world;
  world.generation = 1;
  world.why = "its ranks formed a group";
  std::map<std::string, std::pair<proto::NodeId, std::uint32_t>> hosts;  // node, slots in use
  for (std::size_t rank = 0; rank < processes.size(); ++rank) {
    const auto next = static_cast<proto::NodeId>(hosts.size());
    auto& [node, slots] = hosts.try_emplace(processes[rank].host, next, 0).first->second;
    if (slots == proto::kMaxSlots)
      return base::invalid_argument(
          fmt::format("group: a host has more than {} ranks of the group", proto::kMaxSlots));
    world.members.push_back({.id = static_cast<proto::MemberId>(rank),
                             .slot_id = {node, static_cast<proto::SlotIndex>(slots++)}});
  }
  return world;
}

base::Result<shmem::Arena> share_arena(Store& store, const proto::World& world,
                                       const std::vector<Process>& processes, int rank,
                                       base::TimePoint deadline) {
  const proto::SlotId self = world.members[static_cast<std::size_t>(rank)].slot_id;
  const std::string key = fmt::format("arena/{}", self.node);
  const auto on_host = [&](const proto::WorldMember& member) {
    return member.slot_id.node == self.node;
  };
  if (self.slot == 0) {
    const auto slots = static_cast<std::uint32_t>(std::ranges::count_if(world.members, on_host));
    REGROUP_ASSIGN_OR_RETURN(auto created,
                             shmem::Arena::create({.slots = slots, .node = self.node}));
    for (const proto::WorldMember& member : world.members) {
      if (on_host(member)) created.assign_slot(member.slot_id.slot, member.id);
    }
    if (const std::uint64_t bytes = tail_bytes(slots); bytes > 0)
      REGROUP_RETURN_IF_ERROR(shmem::add_tail(created, bytes));
    base::Fd memfd(::fcntl(created.memfd(), F_DUPFD_CLOEXEC, 0));
    if (!memfd.valid()) return base::system_error("fcntl", "arena", errno);
    REGROUP_ASSIGN_OR_RETURN(auto arena, shmem::Arena::open(std::move(memfd)));
    REGROUP_RETURN_IF_ERROR(
        store.set(key, fmt::format("/proc/{}/fd/{}", ::getpid(), arena.memfd())));
    return arena;
  }
  const auto first = std::ranges::find_if(world.members, on_host) - world.members.begin();
  REGROUP_ASSIGN_OR_RETURN(const auto path, store.get(key, deadline));
  base::Fd memfd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!memfd.valid() && (errno == ENOENT || errno == ESRCH))
    return base::peer_lost(fmt::format("rank {} (pid {}) ended before the group was formed", first,
                                       processes[static_cast<std::size_t>(first)].pid));
  if (!memfd.valid()) return base::system_error("open", path, errno);
  return shmem::Arena::open(std::move(memfd));
}

std::span<std::byte> tail_of_slot(const shmem::Arena& arena, proto::SlotIndex slot) {
  const std::span<std::byte> tail = shmem::tail_of(arena);
  const std::size_t each = tail.size() / arena.spec().slots;
  return tail.subspan(slot * each, each);
}

}  // namespace regroup::collective::group
