// How promptly a process of the launcher gets a core when members keep all of them busy.
#pragma once

namespace regroup::launcher {

// What members must get back.
struct Priority {
  int nice = 0;
};

// The calling process's own, to be read before prefer_promptness().
[[nodiscard]] Priority current_priority();

// Asks for a short EEVDF time slice, which brings an earlier deadline at the same share of the processor and
// needs no privilege, and for nice -10, which may be refused. Best effort: failure only costs latency.
void prefer_promptness();

// Back to normal, for the calling process. Async-signal-safe.
void restore_priority(Priority priority);

}  // namespace regroup::launcher
