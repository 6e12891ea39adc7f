// Simulates processes and a network on a virtual clock. A message takes 50 us plus a nanosecond per
// byte; each end transfers one message at a time. A process runs one handler at a time; a handler
// takes the time that it has taken the real thread, or a fixed time.
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

// What one process has sent, received and computed since the last reset().
struct Traffic {
  std::uint64_t messages_in = 0, messages_out = 0, bytes_in = 0, bytes_out = 0;
  base::Duration busy{};
  std::uint32_t depth = 0;  // length of the chain of messages that led to its last handler
};

class Network {
 public:
  using Handler = std::function<void(ProcessId to, ProcessId from, const Bytes& bytes)>;
  // `each`: the time of every handler; nullopt: as measured.
  Network(std::size_t processes, std::optional<base::Duration> each, Handler handler);

  // To be called in a handler. The message leaves when the handler ends.
  void send(ProcessId to, Bytes bytes);
  // Lets `process` run `what`, not before `at`, at the beginning of a new chain of messages.
  void schedule(ProcessId process, base::TimePoint at, std::function<void()> what);
  // The process runs no more handlers; messages to it are lost.
  void take_down(ProcessId process) { hosts_.at(process).down = true; }
  // uncounted() runs `what` without adding its time to the handler; waited() adds `time` to it.
  void uncounted(const std::function<void()>& what);
  void waited(base::Duration time) { extra_ += time; }

  // Runs the next event. Returns false if none is left up to `until`.
  bool step(base::TimePoint until = base::TimePoint::max());
  // The time at which the last handler ended; within a handler, the time at which it began.
  [[nodiscard]] base::TimePoint now() const { return now_; }
  [[nodiscard]] const Traffic& traffic(ProcessId process) const {
    return hosts_.at(process).traffic;
  }
  void reset();

  static constexpr base::Duration kLatency = std::chrono::microseconds(50);

 private:
  struct Event {
    base::TimePoint at;
    std::uint64_t number;  // orders events of the same time
    ProcessId to, from;
    Bytes bytes;                 // of a message; null if `what` is to run
    std::function<void()> what;  // scheduled
    std::uint32_t depth;
    bool operator>(const Event& other) const {
      return at != other.at ? at > other.at : number > other.number;
    }
  };
  struct Host {
    // The end of its running handler, of its outgoing and of its incoming transfers.
    base::TimePoint free{}, sent{}, received{};
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
  // The messages and added time of the running handler.
  std::vector<std::pair<ProcessId, Bytes>> outbox_;
  base::Duration extra_{};
};

}  // namespace regroup::scale
