// One epoll of pidfds, each reported once; what is to be reported again waits for a timeout of it.
#include "collective/group/peer_watch.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

namespace regroup::collective::group {
namespace {

// Of an event: the group in the upper bits, the index of the process in the lower ones.
constexpr unsigned kIndexBits = 20;
constexpr std::uint64_t kIndexMask = (1U << kIndexBits) - 1;
constexpr int kAgainMs = 1000;

}  // namespace

base::Result<PeerWatch*> PeerWatch::shared() {
  static std::mutex mutex;
  static PeerWatch* watch = nullptr;
  static pid_t owner = 0;  // a child after fork() has no thread of its parent
  const std::lock_guard lock(mutex);
  if (watch != nullptr && owner == ::getpid()) return watch;
  base::Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return base::system_error("epoll_create1", "group", errno);
  watch = new PeerWatch(std::move(epoll));
  owner = ::getpid();
  std::thread thread([watch = watch] { watch->run(); });
  ::pthread_setname_np(thread.native_handle(), "regroup-peers");
  thread.detach();
  return watch;
}

base::Result<std::unique_ptr<PeerWatch::Subscription>> PeerWatch::add(
    const std::vector<pid_t>& processes, Ended ended) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t id = ++last_;
  Group& group = groups_[id];
  group.ended = std::move(ended);
  for (std::size_t i = 0; i < processes.size(); ++i) {
    base::Fd& pidfd =
        group.pidfds.emplace_back(static_cast<int>(::syscall(SYS_pidfd_open, processes[i], 0)));
    if (!pidfd.valid() && errno == ESRCH) {
      report(group, i);
      continue;
    }
    epoll_event event{.events = EPOLLIN | EPOLLONESHOT, .data = {.u64 = id << kIndexBits | i}};
    if (!pidfd.valid() || ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, pidfd.get(), &event) != 0) {
      const base::Status why =
          base::system_error("pidfd_open", fmt::format("process {}", processes[i]), errno);
      groups_.erase(id);
      return why;
    }
  }
  return std::make_unique<Subscription>(this, id);
}

void PeerWatch::report(Group& group, std::size_t index) {
  if (group.ended(index)) group.again.push_back(index);
}

void PeerWatch::run() {
  std::array<epoll_event, 16> events;
  bool again = false;
  for (;;) {
    const int count =
        ::epoll_wait(epoll_.get(), events.data(), events.size(), again ? kAgainMs : -1);
    const std::lock_guard lock(mutex_);
    if (count == 0) {
      for (auto& [id, group] : groups_) {
        for (const std::size_t index : std::exchange(group.again, {})) report(group, index);
      }
    }
    for (int i = 0; i < count; ++i) {
      const std::uint64_t data = events[static_cast<std::size_t>(i)].data.u64;
      const auto group = groups_.find(data >> kIndexBits);
      if (group == groups_.end()) continue;
      const std::size_t index = data & kIndexMask;
      group->second.pidfds[index].reset();
      report(group->second, index);
    }
    again =
        std::ranges::any_of(groups_, [](const auto& group) { return !group.second.again.empty(); });
  }
}

void PeerWatch::remove(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  groups_.erase(id);
}

}  // namespace regroup::collective::group
