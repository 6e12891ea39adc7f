// MPI has no descriptor to wait for: the thread polls, ever more slowly while nothing comes.
#include "tools/mpi/exchange.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <utility>

namespace regroup::mpi {
namespace {

using base::TimePoint;

constexpr std::chrono::milliseconds kBusy(1);  // after a frame: polls without a pause
constexpr std::chrono::microseconds kPause(100);
constexpr std::chrono::milliseconds kIdle(100);  // without a frame: longer pauses
constexpr std::chrono::microseconds kIdlePause(1000);
constexpr std::chrono::seconds kFinishTimeout(1);
constexpr std::chrono::milliseconds kLongestLook(100);  // if more passes, the process was stopped

TimePoint now() { return base::SystemClock().now(); }

}  // namespace

Exchange::Exchange(std::string library, int hosts, base::Duration stall_limit,
                   ExchangeEvents events)
    : library_(std::move(library)),
      hosts_(hosts),
      stall_limit_(stall_limit),
      events_(std::move(events)),
      stalled_(static_cast<std::size_t>(hosts)),
      thread_([this] { run(); }) {
  thread_.detach();  // MPI_Init cannot be interrupted: the process ends without it
}

void Exchange::send(int to, SharedFrame frame) {
  const std::lock_guard lock(mutex_);
  queue_.push_back({to, std::move(frame)});
  changed_.notify_all();
}

void Exchange::visit(std::function<void()> call) {
  const std::lock_guard lock(mutex_);
  visits_.push_back(std::move(call));
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
    if (const auto host = stalled_host()) {
      return events_.failed(fmt::format("{} has delivered nothing to or from {} for {:.3g} s",
                                        (*api)->version(), events_.name_of(*host),
                                        std::chrono::duration<double>(stall_limit_).count()));
    }
    std::unique_lock lock(mutex_);
    if (finishing_ && queue_.empty() && sending_.empty()) {
      finished_ = true;
      changed_.notify_all();
      return;
    }
    if (!queue_.empty() || !visits_.empty()) continue;
    const auto idle = now() - active;
    if (idle < kBusy) continue;
    changed_.wait_for(lock, idle < kIdle ? kPause : kIdlePause);
  }
}

// True if a frame came or went.
bool Exchange::advance(Api& api) {
  std::deque<Outgoing> outgoing;
  std::vector<std::function<void()>> visits;
  {
    const std::lock_guard lock(mutex_);
    outgoing.swap(queue_);
    visits.swap(visits_);
  }
  for (const auto& visit : visits) visit();
  bool moved = !outgoing.empty();
  for (Outgoing& each : outgoing) {
    const std::size_t request = api.send(each.to, *each.frame);
    sending_.push_back({each.to, request, std::move(each.frame)});
  }
  std::erase_if(sending_, [&](const Sending& each) {
    const bool done = api.sent(each.request);
    if (done) stalled_[static_cast<std::size_t>(each.to)] = {};
    return done;
  });
  for (int host = 0; host < hosts_; ++host) {
    if (host == api.rank()) continue;
    while (auto frame = api.receive(host)) {
      moved = true;
      stalled_[static_cast<std::size_t>(host)] = {};
      events_.frame(std::move(*frame));
    }
  }
  if (!moved) ::sched_yield();
  return moved;
}

// Counts the time in which messages to each host have waited.
std::optional<int> Exchange::stalled_host() {
  const TimePoint time = now();
  const auto passed =
      std::min<base::Duration>(time - std::exchange(last_look_, time), kLongestLook);
  std::vector<bool> waits(stalled_.size());
  for (const Sending& each : sending_) waits[static_cast<std::size_t>(each.to)] = true;
  for (std::size_t host = 0; host < stalled_.size(); ++host) {
    stalled_[host] = waits[host] ? stalled_[host] + passed : base::Duration();
    if (stalled_[host] >= stall_limit_) return static_cast<int>(host);
  }
  return std::nullopt;
}

}  // namespace regroup::mpi
