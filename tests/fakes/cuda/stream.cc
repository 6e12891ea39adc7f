// The queue and the thread of a stream.
#include "tests/fakes/cuda/stream.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/fakes/cuda/context.h"
#include "tests/fakes/cuda/guard.h"

namespace regroup::fakes::cuda {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

// The queue always has an entry: the one that was done last.
StreamState::StreamState(ContextState& of, StreamKind stream_kind)
    : context(of), kind(stream_kind), newest_(new Entry) {
  std::thread([this, done = newest_] {
    Entry* entry = done;
    do {
      entry = next_entry(entry);
      do_entry(*entry);
    } while (!entry->closes);
  }).detach();
}

std::uint32_t StreamState::submit(Work work, std::vector<Point> after) {
  auto* entry = new Entry;
  entry->work = std::move(work);
  entry->after = std::move(after);
  return push(entry);
}

void StreamState::close() {
  auto* entry = new Entry;
  entry->closes = true;
  push(entry);
}

std::uint32_t StreamState::push(Entry* entry) {
  const std::lock_guard lock(submitting_);
  const std::uint32_t position = submitted_.load(std::memory_order_relaxed) + 1;
  entry->position = position;
  submitted_.store(position, std::memory_order_relaxed);
  // From here on the stream's thread may free the entry before this one.
  std::exchange(newest_, entry)->next.store(entry, std::memory_order_release);
  arrivals_.fetch_add(1, std::memory_order_release);
  wake_all(arrivals_);
  return position;
}

StreamState::Entry* StreamState::next_entry(Entry* last) {
  for (;;) {
    const std::uint32_t seen = arrivals_.load(std::memory_order_acquire);
    if (Entry* next = last->next.load(std::memory_order_acquire)) {
      delete last;
      return next;
    }
    sleep_while(arrivals_, seen, 1000);
  }
}

void StreamState::do_entry(Entry& entry) {
  for (const Point& point : entry.after)
    while (!point.stream->timeline.reached(point.position) && context.works())
      point.stream->timeline.sleep_before(point.position);
  if (context.works()) do_work(entry.work);
  // Work of a broken context is dropped. Its error is told before, so that no waiter misses it.
  timeline.complete(entry.position);
}

void StreamState::do_work(Work& work) {
  const Clock::time_point begin = Clock::now();
  if (work.fault.kind != FaultKind::kNone) apply(work.fault);
  if (!context.works()) return;
  if (work.run && !run_guarded(work.run)) context.fail(DriverResult::kIllegalAddress);
  const std::uint32_t slowness = Machine::running().slowness.load(std::memory_order_relaxed);
  if (work.takes_time && slowness > 1) {
    const Clock::duration unit =
        std::max<Clock::duration>(Clock::now() - begin, std::chrono::microseconds(10));
    std::this_thread::sleep_until(begin + unit * slowness);
  }
  if (work.stamp != nullptr)
    work.stamp->store(Clock::now().time_since_epoch() / std::chrono::nanoseconds(1),
                      std::memory_order_relaxed);
}

void StreamState::apply(const Fault& fault) {
  switch (fault.kind) {
    case FaultKind::kIllegal:
      return context.fail(DriverResult::kIllegalAddress);
    case FaultKind::kAssert:
      return context.fail(DriverResult::kAssert);
    case FaultKind::kEcc:
      return context.fail(DriverResult::kEccUncorrectable);
    case FaultKind::kLost:
      // First its own error: as soon as the device is lost, other calls give the context another.
      context.fail(DriverResult::kLaunchFailed);
      return Machine::running().lose(context.device);
    case FaultKind::kHang:
      hung = true;
      for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
    case FaultKind::kSlow:
      Machine::running().slowness.store(fault.factor, std::memory_order_relaxed);
      return;
    case FaultKind::kNone:
    case FaultKind::kOutOfMemory:
      return;
  }
}

DriverResult StreamState::wait(std::uint32_t position) {
  while (!timeline.reached(position) && context.works()) timeline.sleep_before(position);
  return context.result();
}

}  // namespace regroup::fakes::cuda
