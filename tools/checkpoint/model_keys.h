// Which tensors of a checkpoint are its model's, and the keys that they have in state_dict().
#pragma once

#include <cstddef>
#include <vector>

#include "base/status.h"
#include "checkpoint/checkpoint.h"

namespace regroup::checkpoint_tool {

// Tensors of a checkpoint under names of their own.
struct Selection {
  checkpoint::Manifest manifest;     // step, and the tensors, without pieces
  std::vector<std::size_t> tensors;  // of the checkpoint, for each of those
};

[[nodiscard]] Selection all_of(const checkpoint::Checkpoint& from);
// Those of the model with the keys of its state_dict(), in their order: of the checkpoint of a job
// of regroup.torch, of one that regroup.torch_checkpoint.save() made of a state_dict() or of a
// dictionary with one under "model", "state_dict" or "model_state_dict"; of any other what is
// called "model.KEY", or all that is no optimizer's. kInvalidArgument: there is none. kDataLoss:
// damaged.
[[nodiscard]] base::Result<Selection> model_of(const checkpoint::Checkpoint& from);

}  // namespace regroup::checkpoint_tool
