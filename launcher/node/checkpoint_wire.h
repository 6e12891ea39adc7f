// A CheckpointPlan in FlatBuffers, for wire.cc.
#pragma once

#include <memory>

#include "launcher/node/checkpoint_plan.h"
#include "launcher/node/wire_generated.h"

namespace regroup::node {

// None of a plan without a directory.
[[nodiscard]] std::unique_ptr<fb::CheckpointsT> checkpoints(const CheckpointPlan& plan);
[[nodiscard]] CheckpointPlan plain_checkpoints(const fb::CheckpointsT& t);

}  // namespace regroup::node
