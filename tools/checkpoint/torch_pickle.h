// The pickle inside a .pt file: a dictionary of tensors, as torch.save() writes it.
#pragma once

#include <string>

#include "checkpoint/manifest.h"

namespace regroup::checkpoint_tool {

// Of a state_dict of all tensors of `manifest`, whose bytes stand in the records data/0, data/1,
// ... torch.load(weights_only=True) reads it.
[[nodiscard]] std::string torch_pickle(const checkpoint::Manifest& manifest);

}  // namespace regroup::checkpoint_tool
