// model.h5: all tensors of a checkpoint under their names, for h5py and h5dump.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "base/status.h"
#include "checkpoint/manifest.h"

namespace regroup::checkpoint::hdf5 {

inline constexpr const char* kViewName = "model.h5";

// The begin and end of each dataset of packed pieces, by the name of its file and its own.
using Packs =
    std::map<std::pair<std::string, std::string>, std::pair<std::uint64_t, std::uint64_t>>;
// `parts` have all pieces that their writers have packed.
[[nodiscard]] Packs packs_of(std::span<const Manifest> parts);

// Writes model.h5 into `folder`, which has the shard files of `manifest`, syncs it to disk, and
// adds it with its checksums to the files of `manifest`.
[[nodiscard]] base::Status add_view(const std::string& folder, const Packs& packs,
                                    Manifest* manifest);

}  // namespace regroup::checkpoint::hdf5
