// The shared-memory backend, whole.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "collective/communicator.h"
#include "core/arena.h"
#include "core/world.h"

namespace regroup::collective {

// Whether copies of ordinary memory, large enough for several chunks, are made by the kernel from the other's
// memory instead of through the stages.
enum class SingleCopyMode : std::uint8_t { kAuto, kAlways, kNever };

// How members fill stages: by what their stores cost lately (pace.h), or always through or past the cache.
enum class StorePolicy : std::uint8_t { kTuned, kPlain, kStream };

// Whether small data travels in cache lines that say for themselves that they are there (lines.h): where this
// processor gains by it, or, for tests, wherever it can or nowhere.
enum class InlineMode : std::uint8_t { kAuto, kAlways, kNever };

struct ShmOptions {
  core::ChannelKind channel = core::ChannelKind::kSteps;
  core::Position
      instance;  // distinguishes successive communicators of one generation on one channel; only grows
  std::vector<int> ranks;                              // of `world` that take part, ascending; empty: all
  SingleCopyMode single_copy = SingleCopyMode::kAuto;  // the same in all members
  StorePolicy store_policy = StorePolicy::kTuned;
  InlineMode inline_mode = InlineMode::kAuto;  // the same in all members
  std::optional<int> numa_node;                // this member's; nothing: of the cores that it may run on
};

// Opens the communicator of `world` for the member at `self`, which is in it; blocks nobody and touches
// nothing until the first operation. `arena` outlives it. kInvalidArgument if the ranks span several nodes or
// `self` is not among them. After a failed operation every later one fails likewise. The members of
// successive communicators of one generation are the same, or a barrier of all lies between.
[[nodiscard]] core::Result<std::unique_ptr<Communicator>> make_shm(const core::Arena& arena,
                                                                   const core::World& world, core::Seat self,
                                                                   const ShmOptions& options = {});

}  // namespace regroup::collective
