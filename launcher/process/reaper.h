// The reaper: a process that is the parent of the agent and a child subreaper. Orphans of the job
// become its children, so it can kill all that is left when guardian and agent are both gone; it
// then removes the job's files and control groups. While the job runs it kills what older jobs
// left. It does not reap members: ProcessTable::reap() of the agent does.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "launcher/process/job_record.h"
#include "launcher/process/terminal_line.h"

namespace regroup::process {

struct ReaperOptions {
  std::shared_ptr<JobRecord> record;        // none: there are no files or control groups to remove
  base::Duration orphan_timeout{};          // how long the agent may run after the guardian's death
  bool quiet = false;                       // print only why the job ends
  std::shared_ptr<TerminalLine> line = {};  // a progress line that is drawn on standard error
};

// The guardian's handle of its reaper. The state that both processes share is in a mapped page, so
// the guardian can read it after the reaper's death. One thread at a time.
class Reaper {
 public:
  // Forks the reaper, which forks the agent. `agent` runs in the agent's process and returns its
  // exit status; `leave_to_agent` runs in the reaper after that fork, to close what only the agent
  // needs. For a process with one thread, signals blocked. The reaper considers the guardian dead
  // when this object and its copies in forked processes are gone.
  [[nodiscard]] static base::Result<Reaper> start(const ReaperOptions& options,
                                                  const std::function<int()>& agent,
                                                  const std::function<void()>& leave_to_agent);

  [[nodiscard]] pid_t pid() const { return pid_; }
  // 0 until it has been forked.
  [[nodiscard]] pid_t agent() const { return state_->agent.load(); }
  // The reaper is ending older jobs: wait for it.
  [[nodiscard]] bool busy() const { return state_->busy.load(); }
  // Why the agent could not be forked; ok otherwise.
  [[nodiscard]] base::Status refusal() const;
  // The wait status of the agent, once the reaper has reaped it.
  [[nodiscard]] std::optional<int> agent_status() const;

 private:
  friend class ReaperProcess;
  // In a page that guardian, reaper and agent share.
  struct SharedState {
    std::atomic<pid_t> agent{0};
    std::atomic<bool> busy{false};
    std::atomic<bool> ended{false};  // stored after `status`, which it publishes
    std::atomic<int> status{0};
    std::atomic<int> refusal{0};  // errno
  };
  struct Unmap {
    void operator()(SharedState* state) const;
  };

  pid_t pid_ = 0;
  base::Fd life_;  // write end of a pipe: the reaper reads EOF when the guardian dies
  std::unique_ptr<SharedState, Unmap> state_;
};

}  // namespace regroup::process
