// The controller's wait for the agents of a job to come up, and the failures meanwhile.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "launcher/agent/hosts_options.h"

namespace regroup::agent {

// The longest that bringing up `agents` agents in a tree of `levels` levels may take if each has
// `limit`. The process that starts an agent enforces the agent's own limit; this one is for a
// parent that fails to. `by_allocator`: some are started by the allocator's command, which has a
// limit, too.
[[nodiscard]] base::Duration longest_bring_up(std::size_t agents, std::size_t levels,
                                              base::Duration limit, bool by_allocator);

// Reads no clock and waits for nothing itself: its caller passes the time. One thread.
class BringUpWait {
 public:
  // The wait begins at `now` and has passed after `longest`.
  void begin(BringUp how, base::Duration limit, base::Duration longest, base::TimePoint now);
  void on_up(base::TimePoint now) { last_up_ = now; }
  // Records the failure of an agent, and calls BringUp::failed until end().
  void on_failed(const base::Status& why);

  // True: stop waiting for the agents that have not come up. Calls BringUp::over and ::enough.
  [[nodiscard]] bool is_over(base::TimePoint now) const;
  // The latest time for the next call of is_over().
  [[nodiscard]] base::TimePoint next_check(base::TimePoint now) const;
  // True: give up the agents that have not come up.
  [[nodiscard]] bool has_passed(base::TimePoint now) const { return now >= deadline_; }
  [[nodiscard]] const std::vector<base::Status>& failures() const { return failures_; }

  // Call when the job begins: from now on the job itself handles failures.
  void end() { how_ = {}; }
  // True between begin() and end() with a BringUp::failed: an agent that exits has failed.
  [[nodiscard]] bool reports_failures() const { return how_.failed != nullptr; }

 private:
  BringUp how_;
  base::Duration limit_{};
  base::TimePoint last_up_{};  // when the last agent came up, at first the beginning
  base::TimePoint deadline_{};
  std::vector<base::Status> failures_;
};

}  // namespace regroup::agent
