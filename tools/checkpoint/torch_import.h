// Files of torch.save are read by torch alone: import --from torch is the work of
// regroup.torch_checkpoint.
#pragma once

#include <string>

#include "base/status.h"
#include "proto/world.h"

namespace regroup::checkpoint_tool {

// Takes the place of this process; returns only if no Python has what it takes, and says what each
// lacks.
[[nodiscard]] base::Status import_torch(const std::string& file, const std::string& directory,
                                        proto::Step step);

}  // namespace regroup::checkpoint_tool
