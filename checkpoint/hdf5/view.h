// model.h5: all tensors of a checkpoint under their names, for h5py and h5dump.
#pragma once

#include <string>

#include "base/status.h"
#include "checkpoint/manifest.h"

namespace regroup::checkpoint::hdf5 {

inline constexpr const char* kViewName = "model.h5";

// Writes model.h5 into `folder`, which has the shard files of `manifest`, syncs it to disk, and
// adds it with its checksums to the files of `manifest`.
[[nodiscard]] base::Status add_view(const std::string& folder, Manifest* manifest);

}  // namespace regroup::checkpoint::hdf5
