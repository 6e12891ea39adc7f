// Notices that a process of the group has ended.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/status.h"

namespace regroup::collective::group {

// Watches processes by their pidfds, which a process that the watched one has forked does not keep
// alive. One thread for all groups of this process.
class PeerWatch {
 public:
  // Of this process; created by the first call, never destroyed.
  [[nodiscard]] static base::Result<PeerWatch*> shared();

  // Calls `ended` with the index of each of `processes` that ends, in the thread of the watch. A
  // process that has ended already counts. Calls it again a second later, and so on, while it
  // returns true. The watch goes on until the returned object is destroyed; after that `ended` is
  // not called, and no call is in progress.
  using Ended = std::function<bool(std::size_t index)>;
  class Subscription {
   public:
    Subscription(PeerWatch* watch, std::uint64_t id) : watch_(watch), id_(id) {}
    ~Subscription() { watch_->remove(id_); }
    Subscription(const Subscription&) = delete;
    Subscription& operator=(const Subscription&) = delete;

   private:
    PeerWatch* const watch_;
    const std::uint64_t id_;
  };
  [[nodiscard]] base::Result<std::unique_ptr<Subscription>> add(const std::vector<pid_t>& processes,
                                                                Ended ended);

 private:
  struct Group {
    std::vector<base::Fd> pidfds;    // invalid: it has ended
    std::vector<std::size_t> again;  // to be reported again
    Ended ended;
  };

  PeerWatch(base::Fd epoll) : epoll_(std::move(epoll)) {}
  void run();
  void report(Group& group, std::size_t index);
  void remove(std::uint64_t id);

  const base::Fd epoll_;
  std::mutex mutex_;  // held while `ended` is called
  std::map<std::uint64_t, Group> groups_;
  std::uint64_t last_ = 0;
};

}  // namespace regroup::collective::group
