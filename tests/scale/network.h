// Processes that speak through a network on a virtual clock. A message takes 50 us and a nanosecond
// for each byte, the bytes one message after another at either end; a process does one thing at a
// time, and what it does takes as long as it has taken the thread here, or as long as the caller
// says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <vector>

#include "base/clock.h"

namespace regroup::scale {

using ProcessId = std::uint32_t;
using Bytes = std::shared_ptr<const std::vector<std::byte>>;

// Processor time that this thread has used.
[[nodiscard]] base::Duration thread_time();

// Of one process, since the last reset().
struct Traffic {
  std::uint64_t messages_in = 0, messages_out = 0, bytes_in = 0, bytes_out = 0;
  base::Duration busy{};
  std::uint32_t depth = 0;  // messages one after the other that led to the last thing it did
};

class Network {
 public:
  using Handler = std::function<void(ProcessId to, ProcessId from, const Bytes& bytes)>;
  // `each`: what any handler takes; nothing: what it has taken.
  Network(std::size_t processes, std::optional<base::Duration> each, Handler handler);

  // Of a handler in progress: it goes out when that is done.
  void send(ProcessId to, Bytes bytes);
  // It does `what`, not before `at`, beginning a new chain of messages.
  void schedule(ProcessId process, base::TimePoint at, std::function<void()> what);
  // A process that is down neither does nor hears anything.
  void take_down(ProcessId process) { hosts_.at(process).down = true; }
  // What `what` takes here is none of the process's time; `waited` is, beside that of the thread.
  void uncounted(const std::function<void()>& what);
  void waited(base::Duration time) { extra_ += time; }

  // The next thing happens; false: nothing is left but what is scheduled after `until`.
  bool step(base::TimePoint until = base::TimePoint::max());
  // When the process that did something last had done it, or is doing it.
  [[nodiscard]] base::TimePoint now() const { return now_; }
  [[nodiscard]] const Traffic& traffic(ProcessId process) const {
    return hosts_.at(process).traffic;
  }
  void reset();

  static constexpr base::Duration kLatency = std::chrono::microseconds(50);

 private:
  struct Event {
    base::TimePoint at;
    std::uint64_t number;  // of equals, the first comes first
    ProcessId to, from;
    Bytes bytes;  // or
    std::function<void()> what;
    std::uint32_t depth;
    bool operator>(const Event& other) const {
      return at != other.at ? at > other.at : number > other.number;
    }
  };
  struct Host {
    base::TimePoint free{}, sent{},
        received{};  // until when it works, its line out and in are taken
    bool down = false;
    Traffic traffic;
  };
  void run(const Event& event);
  void transmit(ProcessId from, ProcessId to, Bytes bytes, std::uint32_t depth);

  const std::optional<base::Duration> each_;
  const Handler handler_;
  std::vector<Host> hosts_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t last_ = 0;
  base::TimePoint now_{std::chrono::seconds(1000)};
  // Of the handler in progress.
  std::vector<std::pair<ProcessId, Bytes>> outbox_;
  base::Duration extra_{};
};

}  // namespace regroup::scale
