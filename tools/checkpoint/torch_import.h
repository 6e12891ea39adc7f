// `import --from torch`: only torch can read files of torch.save(), so that this executes Python
// with regroup.torch_checkpoint.
#pragma once

#include <string>

#include "base/status.h"
#include "proto/world.h"

namespace regroup::checkpoint_tool {

// Replaces this process by Python. Returns only if every Python found lacks torch or regroup; the
// message names what each lacks.
[[nodiscard]] base::Status import_torch(const std::string& file, const std::string& directory,
                                        proto::Step step);

}  // namespace regroup::checkpoint_tool
