// Of the head of a job and the agent of a host that has a directory of checkpoints of its own, before the job
// begins: does it go on from one of these? docs/design/newest_of_hosts.md.
#pragma once

#include <string>

#include "core/status.h"
#include "core/world.h"
#include "launcher/node/checkpoint_plan.h"

namespace regroup::node {

// --- head -> agent
// What has this host in its own directory of checkpoints that is newer than what the job would go on from, or
// anything where that is nothing? Or: this step, which it has named, is to be copied to the shared one.
// Before Setup, with which all that ends. Answered by OwnFound.
struct AskOwn {
  CheckpointPlan plan;
  core::Step copy = 0;  // 0: look only
};

// --- agent -> head
struct OwnFound {
  bool busy = false;  // still reading or copying: more follows
  core::Status status = {};
  core::Step step = 0;    // whose bytes are all good, or are copied; 0: there is none
  std::string said = {};  // lines for the user
};

}  // namespace regroup::node
