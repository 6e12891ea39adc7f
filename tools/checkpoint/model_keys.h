// Finds the tensors of a checkpoint that belong to its model, and their keys in state_dict().
#pragma once

#include <cstddef>
#include <vector>

#include "base/status.h"
#include "checkpoint/checkpoint.h"

namespace regroup::checkpoint_tool {

// Some tensors of a checkpoint, with new names.
struct Selection {
  checkpoint::Manifest manifest;     // the step, and the tensors without their pieces
  std::vector<std::size_t> tensors;  // for each of them its index in the checkpoint
};

[[nodiscard]] Selection all_of(const checkpoint::Checkpoint& from);
// Selects the model's tensors, named by their keys in its state_dict() and in that order. The keys
// are known for
// - the checkpoint of a job of regroup.torch,
// - what regroup.torch_checkpoint.save() wrote of a state_dict(), or of a dictionary that holds one
//   under "model", "state_dict" or "model_state_dict".
// In any other checkpoint the tensors named "model.KEY" are the model's; if none is, all that do
// not belong to an optimizer. kInvalidArgument: the checkpoint holds no model; kDataLoss: it is
// damaged.
[[nodiscard]] base::Result<Selection> model_of(const checkpoint::Checkpoint& from);

}  // namespace regroup::checkpoint_tool
