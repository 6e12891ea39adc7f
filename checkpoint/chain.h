// Checkpoints that have only what changed since another one, their base: the tables of a parameter
// server are those of a chain that begins with a whole checkpoint. All of a chain lie in the same
// directory.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/checkpoint.h"

namespace regroup::checkpoint {

inline constexpr std::size_t kLongestChain = 64;  // checkpoints

// The checkpoint at `path` and those that it needs: the whole one first, that at `path` last. Reads
// manifests only. kDataLoss: one is damaged or gone; the message names it.
[[nodiscard]] base::Result<std::vector<Checkpoint>> open_chain(const std::string& path);
// As verify() of each checkpoint of the chain.
[[nodiscard]] base::Status verify_chain(const std::string& path, const OnProgress& on_progress);
// Refuses a checkpoint that has only changes, for whoever reads a single one. kInvalidArgument.
[[nodiscard]] base::Status check_whole(const Checkpoint& checkpoint);
// The base of the checkpoint at `path`; empty if it has none, or is not there. Reads the first
// bytes of the manifest only and does not check them.
[[nodiscard]] base::Result<std::optional<proto::Step>> base_of(const std::string& path);

}  // namespace regroup::checkpoint
