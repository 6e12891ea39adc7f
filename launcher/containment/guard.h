// The guard: the parent of the agent. Orphans of the job become its children, so when guardian and agent are
// both gone it can end all that is left, and it removes the job's files and control groups. While the job
// runs it ends what older jobs left.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include "core/clock.h"
#include "core/fd.h"
#include "core/status.h"
#include "launcher/containment/job_record.h"

namespace regroup::launcher {

struct GuardOptions {
  std::shared_ptr<JobRecord> record;  // none: only processes are cleared away
  core::Duration orphan_timeout{};    // how long the agent may go on when the guardian is gone
  bool quiet = false;                 // nothing is said but why the job ends
};

// The guardian's side of its guard.
class Guard {
 public:
  // Forks the guard, which forks the agent: `agent` runs there, its result is the agent's exit status;
  // `leave_to_agent` runs in the guard after that. For a process with one thread, signals blocked. When this
  // object and all forks of it are gone, the guard takes the guardian for dead.
  [[nodiscard]] static core::Result<Guard> start(const GuardOptions& options,
                                                 const std::function<int()>& agent,
                                                 const std::function<void()>& leave_to_agent);

  [[nodiscard]] pid_t pid() const { return pid_; }
  // 0 until it has been forked.
  [[nodiscard]] pid_t agent() const { return board_->agent.load(); }
  // It is ending older jobs: to be waited for.
  [[nodiscard]] bool busy() const { return board_->busy.load(); }
  // Why there never was an agent; ok: there was one, or is to be.
  [[nodiscard]] core::Status refusal() const;
  // The wait status of the agent, once the guard has seen it die.
  [[nodiscard]] std::optional<int> agent_status() const;

 private:
  friend class GuardProcess;
  // In memory that guardian, guard and agent share.
  struct Board {
    std::atomic<pid_t> agent{0};
    std::atomic<bool> busy{false};
    std::atomic<bool> ended{false};  // stored after status
    std::atomic<int> status{0};
    std::atomic<int> refusal{0};  // errno
  };
  struct Unmap {
    void operator()(Board* board) const;
  };

  pid_t pid_ = 0;
  core::Fd life_;  // the guard reads its end
  std::unique_ptr<Board, Unmap> board_;
};

}  // namespace regroup::launcher
