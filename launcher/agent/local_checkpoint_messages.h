// Messages about local checkpoints, between the controller and the agent of a host whose checkpoint
// directory is its own disk. They decide, before the job begins, whether it resumes from one of
// these. docs/design/local_checkpoints.md.
#pragma once

#include <string>

#include "base/status.h"
#include "launcher/spec/checkpoint_plan.h"
#include "proto/world.h"

namespace regroup::agent {

// --- controller -> agent
// copy = 0: which checkpoint in the agent's own directory is newer than plan.resume (or the newest,
// where that is empty)? copy > 0: copy the checkpoint of this step, which the agent has reported,
// to the shared directory. Sent before Setup, which cancels it. Answered by LocalCheckpointReply.
struct QueryLocalCheckpoint {
  spec::CheckpointPlan plan;
  proto::Step copy = 0;
};

// --- agent -> controller
struct LocalCheckpointReply {
  bool busy = false;  // still reading or copying: another reply follows
  base::Status status = {};
  proto::Step step = 0;   // of a checkpoint that was verified, or copied; 0: there is none
  std::string said = {};  // lines for the user
};

}  // namespace regroup::agent
