// Converts a CheckpointPlan and the messages about local checkpoints to FlatBuffers and back. Part
// of wire.cc.
#pragma once

#include <memory>

#include "base/status.h"
#include "launcher/agent/local_checkpoint_messages.h"
#include "launcher/agent/wire_generated.h"
#include "launcher/agent/wire_parts.h"
#include "launcher/spec/checkpoint_plan.h"

namespace regroup::agent {

// nullptr for a plan without a directory.
[[nodiscard]] std::unique_ptr<fb::CheckpointsT> checkpoints(const spec::CheckpointPlan& plan);
[[nodiscard]] spec::CheckpointPlan plain_checkpoints(const fb::CheckpointsT& t);

inline fb::QueryLocalCheckpointT table(const QueryLocalCheckpoint& m) {
  fb::QueryLocalCheckpointT t;
  t.checkpoints = checkpoints(m.plan), t.copy = m.copy;
  return t;
}
inline base::Result<QueryLocalCheckpoint> plain(const fb::QueryLocalCheckpointT& t) {
  if (!t.checkpoints || t.checkpoints->directory.empty())
    return base::data_loss("QueryLocalCheckpoint: expected a checkpoint directory");
  return QueryLocalCheckpoint{plain_checkpoints(*t.checkpoints), t.copy};
}
inline fb::LocalCheckpointReplyT table(const LocalCheckpointReply& m) {
  fb::LocalCheckpointReplyT t;
  t.busy = m.busy, t.step = m.step, t.said = m.said;
  set_status(m.status, t);
  return t;
}
inline base::Result<LocalCheckpointReply> plain(const fb::LocalCheckpointReplyT& t) {
  LocalCheckpointReply m{t.busy, {}, t.step, t.said};
  REGROUP_RETURN_IF_ERROR(plain_status(t, "LocalCheckpointReply: code", &m.status));
  return m;
}
}  // namespace regroup::agent
