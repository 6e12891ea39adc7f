// Scheduling priority of launcher processes, which must run promptly while members keep all cores
// busy.
#pragma once

namespace regroup::process {

// The priority to restore in members.
struct Priority {
  int nice = 0;
};

// The priority of the calling process. Call before prefer_promptness().
[[nodiscard]] Priority current_priority();

// Asks for a short EEVDF time slice, which brings an earlier deadline at the same share of the
// processor and needs no privilege, and for nice -10, which may be refused. Best effort: failure
// only costs latency.
void prefer_promptness();

// Restores the priority of the calling process. Async-signal-safe.
void restore_priority(Priority priority);

}  // namespace regroup::process
