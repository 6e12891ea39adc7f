// A stream: a thread that does work in order. What orders its work and the host's calls, for
// ThreadSanitizer too, is what CUDA promises and nothing else: a submission comes before its work,
// work before the waits that it ends, and before successful queries.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "tests/fakes/cuda/futex.h"
#include "tests/fakes/cuda/settings.h"

namespace regroup::fakes::cuda {

struct ContextState;
class StreamState;

// How much of a stream's work is done: all up to a position. Positions wrap around.
class Timeline {
 public:
  [[nodiscard]] bool reached(std::uint32_t position) const {
    const auto is_there = [&](std::memory_order order) {
      return std::int32_t(done_.load(order) - position) >= 0;
    };
    // A query that fails must order nothing.
    return is_there(std::memory_order_relaxed) && is_there(std::memory_order_acquire);
  }
  // Sleeps a while, unless `position` has been reached.
  void sleep_before(std::uint32_t position) const {
    const std::uint32_t seen = done_.load(std::memory_order_relaxed);
    if (std::int32_t(seen - position) < 0) sleep_while(done_, seen, 20);
  }
  // By the stream's thread.
  void complete(std::uint32_t position) {
    done_.store(position, std::memory_order_release);
    wake_all(done_);
  }

 private:
  std::atomic<std::uint32_t> done_ = 0;
};

// A point of a stream's work.
struct Point {
  StreamState* stream = nullptr;
  std::uint32_t position = 0;
};

// When a recorded event happened, in nanoseconds.
using Stamp = std::atomic<std::int64_t>;

struct Work {
  std::function<void()> run;  // may be empty; owns nothing that a jump out of it would leave
  Fault fault;
  bool takes_time = false;  // of a launch or a copy
  Stamp* stamp = nullptr;   // told when `run` has ended
};

enum class StreamKind { kDefault, kBlocking, kNonBlocking };  // kBlocking: ordered with the default

// Never freed, so that a stale handle is refused instead of read.
class StreamState {
 public:
  StreamState(ContextState& of, StreamKind stream_kind);

  ContextState& context;  // NOLINT(readability-identifier-naming)
  const StreamKind kind;
  std::atomic<bool> alive = true;
  std::atomic<int> capture = 0;
  std::atomic<bool> hung = false;
  Timeline timeline;

  // Returns the position at which `work` is done. It begins when all of `after` are done.
  std::uint32_t submit(Work work, std::vector<Point> after);
  // The end of what has been submitted.
  [[nodiscard]] Point last() { return {this, submitted_.load(std::memory_order_relaxed)}; }
  // Ends the thread when all earlier work is done. Does not wait.
  void close();
  // Waits for a point of this stream. The result of its context.
  DriverResult wait(std::uint32_t position);

 private:
  struct Entry {
    Work work;
    std::vector<Point> after;
    std::uint32_t position = 0;
    bool closes = false;
    std::atomic<Entry*> next = nullptr;
  };

  std::uint32_t push(Entry* entry);
  Entry* next_entry(Entry* last);
  void do_entry(Entry& entry);
  void do_work(Work& work);
  void apply(const Fault& fault);

  // Of the threads that submit: the newest entry.
  std::mutex submitting_;
  Entry* newest_;
  std::atomic<std::uint32_t> submitted_ = 0;
  std::atomic<std::uint32_t> arrivals_ = 0;  // the stream's thread sleeps on it
};

}  // namespace regroup::fakes::cuda
