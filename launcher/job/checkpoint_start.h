// What a job with checkpoints goes on from, before anything of it runs.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "checkpoint/writer/checkpoint_texts.h"
#include "launcher/job/option_rules.h"
#include "launcher/process/run_in_subprocess.h"

namespace regroup::job {

// What the World of a job starts from.
struct WorldStart {
  writer::CheckpointPlan checkpoints;
  std::uint64_t seed = 0;
  std::uint32_t shards = 0;  // 0: the World chooses
};

// Locks the directories of `spec` for the job and finds their newest intact checkpoint, whose
// seed and number of shards become those of the World; without one these are --seed and `shards`.
// `locks`, here or in a child process, hold the locks. Blocks while that checkpoint is verified.
// With `hosts` (a job on several) the first of two directories is local to each host: a newer
// checkpoint in this host's local directory, if it can be locked, is copied to the second one, from
// which the job resumes and which alone stays locked. A job with --ps-memory resumes from tables
// only, any other job from the state of a World only.
[[nodiscard]] base::Result<WorldStart> prepare_checkpoints(const spec::JobSpec& spec,
                                                           std::uint32_t shards,
                                                           const std::string& job, bool hosts,
                                                           process::HeldLocks* locks);
// kInvalidArgument: --seed or --shards was given and is not that of the checkpoint to resume from.
[[nodiscard]] base::Status check_resumed_options(const spec::JobSpec& spec,
                                                 const writer::Resume& resume);

}  // namespace regroup::job
