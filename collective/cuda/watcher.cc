// Events are polled, not awaited: cuEventSynchronize() has no deadline, and on an H200 a thread
// that it wakes is no earlier than one that sleeps for 50 us between two looks (tests/gpu/results).
#include "collective/cuda/watcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace regroup::collective::cuda {
namespace {

using base::Result;
using base::Status;
using std::chrono::microseconds;

constexpr auto kSpin = microseconds(50);  // after which polls have pauses
constexpr base::Duration kShortest = microseconds(50);
constexpr base::Duration kLongest = microseconds(200);
constexpr int kPart = 64;  // a pause is such a part of the time waited

}  // namespace

Result<std::unique_ptr<Watcher>> Watcher::start(const Driver& driver,
                                                std::function<void()> stored) {
  std::unique_ptr<Watcher> watcher(new Watcher(driver, std::move(stored)));
  REGROUP_RETURN_IF_ERROR(watcher->prepare());
  watcher->thread_ = std::thread(&Watcher::run, watcher.get());
  return watcher;
}

Watcher::~Watcher() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_one();
  thread_.join();
  for (const Watched& one : watched_) free_events_.push_back(one.event);
  for (const DriverEvent event : free_events_) static_cast<void>(driver_.event_destroy(event));
}

Status Watcher::prepare() {
  REGROUP_RETURN_IF_ERROR(driver_.status(driver_.context_get(&context_), "cuCtxGetCurrent"));
  return driver_.status(driver_.context_device(&device_), "cuCtxGetDevice");
}

Status Watcher::overwrite(Mark mark, Stream stream, const std::function<Status()>& launch) {
  // The word first: from the launch on the memory is not what the word says.
  withdraw(*mark.word);
  REGROUP_RETURN_IF_ERROR(launch());
  return store_when_done(std::move(mark), stream);
}

void Watcher::withdraw(std::atomic<std::uint64_t>& word) {
  const std::lock_guard lock(mutex_);
  // A mark of what the memory held before would be stored over the 0.
  std::erase_if(watched_, [&](const Watched& one) {
    if (one.mark.word != &word) return false;
    free_events_.push_back(one.event);
    return true;
  });
  word.store(0, std::memory_order_seq_cst);
}

Status Watcher::store_when_done(Mark mark, Stream stream) {
  {
    const std::lock_guard lock(mutex_);
    if (!failed_.ok()) return failed_;
    REGROUP_ASSIGN_OR_RETURN(const DriverEvent event, take_event());
    const DriverResult recorded = driver_.event_record(event, stream);
    if (recorded != DriverResult::kSuccess) {
      free_events_.push_back(event);
      return driver_.status(recorded, fmt::format("GPU {}: {}: cuEventRecord", device_, mark.work));
    }
    watched_.push_back({std::move(mark), event, base::SystemClock().now()});
  }
  changed_.notify_one();
  return {};
}

Result<DriverEvent> Watcher::take_event() {
  if (!free_events_.empty()) {
    const DriverEvent event = free_events_.back();
    free_events_.pop_back();
    return event;
  }
  DriverEvent event = nullptr;
  REGROUP_RETURN_IF_ERROR(driver_.status(driver_.event_create(&event, kDisableTiming),
                                         fmt::format("GPU {}: cuEventCreate", device_)));
  return event;
}

Status Watcher::status() const {
  const std::lock_guard lock(mutex_);
  return failed_;
}

Status Watcher::overdue() const {
  const std::lock_guard lock(mutex_);
  if (!failed_.ok() || watched_.empty()) return failed_;
  return late(watched_.front(), base::SystemClock().now());
}

Status Watcher::late(const Watched& one, base::TimePoint now) const {
  return base::deadline_exceeded(
      fmt::format("GPU {}: {}: not done after {} s", device_, one.mark.work,
                  std::chrono::duration_cast<std::chrono::seconds>(now - one.since).count()));
}

void Watcher::run() {
  static_cast<void>(driver_.context_set(context_));
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ends_ || !watched_.empty(); });
    if (ends_) return;
    if (poll()) {
      lock.unlock();
      stored_();
      lock.lock();
    } else if (const base::Duration rest = pause(); rest != base::Duration::zero()) {
      changed_.wait_for(lock, rest);
    } else {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    }
  }
}

// Stores the marks whose events have fired. True if there was something to tell. The lock is held,
// so that withdraw() never comes between a look and its store.
bool Watcher::poll() {
  const base::TimePoint now = base::SystemClock().now();
  const std::size_t before = watched_.size();
  std::erase_if(watched_, [&](const Watched& one) {
    if (!failed_.ok()) return false;
    const DriverResult result = driver_.event_query(one.event);
    if (result == DriverResult::kSuccess) {
      one.mark.word->store(one.mark.value, std::memory_order_release);
      free_events_.push_back(one.event);
      return true;
    }
    if (result != DriverResult::kNotReady) {
      failed_ =
          driver_.status(result, fmt::format("GPU {}: {}: cuEventQuery", device_, one.mark.work));
    } else if (now >= one.mark.deadline) {
      failed_ = late(one, now);
    }
    return false;
  });
  if (failed_.ok()) return watched_.size() != before;
  for (const Watched& one : watched_) free_events_.push_back(one.event);
  watched_.clear();
  return true;
}

// The time until the next look: none for new work, the longer the longer that takes.
base::Duration Watcher::pause() const {
  base::TimePoint newest;
  for (const Watched& one : watched_) newest = std::max(newest, one.since);
  const base::Duration waited = base::SystemClock().now() - newest;
  if (waited < kSpin) return base::Duration::zero();
  return std::clamp(waited / kPart, kShortest, kLongest);
}

}  // namespace regroup::collective::cuda
