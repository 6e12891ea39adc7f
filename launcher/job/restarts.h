// Relaunches a job that has lost all its members, and with them its state: it resumes from its
// newest checkpoint, as if its user had entered the command again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "launcher/agent/guardian.h"
#include "launcher/job/job_files.h"
#include "launcher/job/journal.h"
#include "launcher/job/option_rules.h"
#include "launcher/spec/checkpoint_plan.h"
#include "membership/coordinator/restart_budget.h"
#include "proto/world.h"

namespace regroup::job {

// One of the launches of a job: the first, or a relaunch, with what those before it left.
struct JobLaunch {
  std::uint32_t number = 1;                 // of this job, in this process
  base::Duration spent = {};                // by those before, of --timeout
  int status = 1;                           // of the one before
  membership::FailureStreak failures = {};  // in a row, as that left them
  [[nodiscard]] bool first() const { return number == 1; }
};

struct LaunchEnd {
  int status = 1;
  // No member was left that had the state, and there is a directory of checkpoints: hosts whose
  // members may live on for a moment, -1: not known.
  std::optional<int> state_lost = {};
  proto::Step resumed = 0;  // what it had gone on from, as far as is known here
  membership::FailureStreak failures = {};
};

// The journal of a launch as the launcher holds it: open, since the job's files go away with the
// job. It is of use to the next launch only, so what cannot be opened, read or written passes
// nothing on.
class HeldJournal {
 public:
  // Makes the journal in `files`; its coordinator begins with the failures that `launch` has.
  HeldJournal(const JobFiles& files, const JobLaunch& launch);
  [[nodiscard]] membership::FailureStreak failures() const;

 private:
  std::optional<JournalFile> journal_;
};

// The end of a job, from its guardian and its journal.
[[nodiscard]] LaunchEnd end_of(const agent::Guardian& guardian, int status,
                               const spec::CheckpointPlan& checkpoints, const HeldJournal& journal);
// A launch that is to go on from a checkpoint and finds none in `directory`; it ends with
// JobLaunch::status.
[[nodiscard]] std::string nothing_to_go_on_from(const std::string& directory);

// At most --max-restarts times (3) without a newer checkpoint, after 1, 2, 4 ... at most 30 s.
class Restarts {
 public:
  explicit Restarts(const spec::JobSpec& spec);
  // Says on standard error what becomes of the job and waits as long as it must. Its exit status,
  // if it stays ended. For the main thread, in which signals are blocked: one that ends a job ends
  // the wait.
  [[nodiscard]] std::optional<int> over(const LaunchEnd& end);
  [[nodiscard]] JobLaunch launch() const;

 private:
  const spec::JobSpec& spec_;
  const std::uint32_t most_;
  const base::TimePoint began_;
  std::uint32_t launches_ = 1;
  std::uint32_t fruitless_ = 0;
  int status_ = 1;
  proto::Step resumed_ = 0;
  membership::FailureStreak failures_;
};

}  // namespace regroup::job
