// A CheckpointPlan, and what is said of a host's own checkpoints, in FlatBuffers: a part of wire.cc.
#pragma once

#include <memory>

#include "core/status.h"
#include "launcher/node/checkpoint_plan.h"
#include "launcher/node/own_messages.h"
#include "launcher/node/wire_generated.h"
#include "launcher/node/wire_parts.h"

namespace regroup::node {

// None of a plan without a directory.
[[nodiscard]] std::unique_ptr<fb::CheckpointsT> checkpoints(const CheckpointPlan& plan);
[[nodiscard]] CheckpointPlan plain_checkpoints(const fb::CheckpointsT& t);

inline fb::AskOwnT table(const AskOwn& m) {
  fb::AskOwnT t;
  t.checkpoints = checkpoints(m.plan), t.copy = m.copy;
  return t;
}
inline core::Result<AskOwn> plain(const fb::AskOwnT& t) {
  if (!t.checkpoints || t.checkpoints->directory.empty())
    return core::Status(core::Code::kDataLoss, "AskOwn: no checkpoints");
  return AskOwn{plain_checkpoints(*t.checkpoints), t.copy};
}
inline fb::OwnFoundT table(const OwnFound& m) {
  fb::OwnFoundT t;
  t.busy = m.busy, t.step = m.step, t.said = m.said;
  set_status(m.status, t);
  return t;
}
inline core::Result<OwnFound> plain(const fb::OwnFoundT& t) {
  OwnFound m{t.busy, {}, t.step, t.said};
  REGROUP_RETURN_IF_ERROR(plain_status(t, "OwnFound: code", &m.status));
  return m;
}
}  // namespace regroup::node
