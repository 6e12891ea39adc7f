// Writes the pickle inside a .pt file: a dictionary of tensors, as torch.save() does.
#pragma once

#include <string>

#include "checkpoint/manifest.h"

namespace regroup::checkpoint_tool {

// Returns the pickle of a state_dict of all tensors of `manifest`; their bytes belong into the
// records data/0, data/1, ... torch.load(weights_only=True) can read it.
[[nodiscard]] std::string torch_pickle(const checkpoint::Manifest& manifest);

}  // namespace regroup::checkpoint_tool
