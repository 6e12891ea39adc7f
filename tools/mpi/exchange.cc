// MPI has no descriptor to wait for: the thread polls, ever more slowly while nothing comes.
#include "tools/mpi/exchange.h"

#include <fmt/format.h>
#include <sched.h>

#include <utility>

namespace regroup::mpi {
namespace {

using base::TimePoint;

constexpr std::chrono::milliseconds kBusy(1);  // after a frame: polls without a pause
constexpr std::chrono::microseconds kPause(100);
constexpr std::chrono::milliseconds kIdle(100);  // without a frame: longer pauses
constexpr std::chrono::microseconds kIdlePause(1000);
constexpr std::chrono::seconds kFinishTimeout(1);

TimePoint now() { return base::SystemClock().now(); }

}  // namespace

Exchange::Exchange(std::string library, int hosts, ExchangeEvents events)
    : library_(std::move(library)),
      hosts_(hosts),
      events_(std::move(events)),
      thread_([this] { run(); }) {
  thread_.detach();  // MPI_Init cannot be interrupted: the process ends without it
}

void Exchange::send(int to, SharedFrame frame) {
  const std::lock_guard lock(mutex_);
  queue_.push_back({to, std::move(frame)});
  changed_.notify_all();
}

void Exchange::finish() {
  std::unique_lock lock(mutex_);
  finishing_ = true;
  changed_.notify_all();
  changed_.wait_for(lock, kFinishTimeout, [this] { return finished_; });
}

void Exchange::run() {
  auto api = load(library_);
  if (!api.ok()) return events_.failed(api.status().message());
  (*api)->init();
  if (const int size = (*api)->size(); size != hosts_) {
    return events_.failed(fmt::format("{}: MPI_COMM_WORLD has {} processes, expected {}",
                                      (*api)->version(), size, hosts_));
  }
  connected_ = true;
  events_.ready((*api)->version());
  for (TimePoint active = now();;) {
    if (advance(**api)) active = now();
    std::unique_lock lock(mutex_);
    if (finishing_ && queue_.empty() && sending_.empty()) {
      finished_ = true;
      changed_.notify_all();
      return;
    }
    if (!queue_.empty()) continue;
    const auto idle = now() - active;
    if (idle < kBusy) continue;
    changed_.wait_for(lock, idle < kIdle ? kPause : kIdlePause);
  }
}

// True if a frame came or went.
bool Exchange::advance(Api& api) {
  std::deque<Outgoing> outgoing;
  {
    const std::lock_guard lock(mutex_);
    outgoing.swap(queue_);
  }
  bool moved = !outgoing.empty();
  for (Outgoing& each : outgoing) {
    const std::size_t request = api.send(each.to, *each.frame);
    sending_.push_back({request, std::move(each.frame)});
  }
  std::erase_if(sending_, [&api](const Sending& each) { return api.sent(each.request); });
  for (int host = 0; host < hosts_; ++host) {
    if (host == api.rank()) continue;
    while (auto frame = api.receive(host)) {
      moved = true;
      events_.frame(std::move(*frame));
    }
  }
  if (!moved) ::sched_yield();
  return moved;
}

}  // namespace regroup::mpi
