// Opens communicators of the shared-memory backend.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "collective/local_communicator.h"
#include "collective/options.h"
#include "proto/world.h"
#include "regroup/communicator.h"
#include "shmem/arena.h"

namespace regroup::collective::shm {

// Whether members copy large data in ordinary memory once, by cross-memory attach (CMA:
// process_vm_readv), instead of through bounce buffers. kAuto: in operations that are faster so.
enum class SingleCopyMode : std::uint8_t { kAuto, kAlways, kNever };

// The stores that fill bounce buffers: chosen by measurement (store_tuner.h), always through the
// cache, or always past it.
enum class StorePolicy : std::uint8_t { kTuned, kPlain, kStream };

// Whether small data travels in inline chunks (inline_chunk.h). kAuto: if that is faster on this
// processor. The other two are for tests.
enum class InlineMode : std::uint8_t { kAuto, kAlways, kNever };

struct ShmOptions {
  SingleCopyMode single_copy = SingleCopyMode::kAuto;  // the same in all members
  StorePolicy store_policy = StorePolicy::kTuned;
  InlineMode inline_mode = InlineMode::kAuto;  // the same in all members
  std::optional<int> numa_node;                // this member's; empty: derived from its affinity
  // The clock that limits spinning; nullptr: the system's.
  base::TimePoint (*spin_clock)() = nullptr;
};

// Opens the communicator of `world` for the member at `self`. Does not block and does not access
// the arena before the first operation. `arena` must outlive the communicator. kInvalidArgument if
// the ranks span several hosts or `self` is not among them. After a failed operation every later
// one fails with the same status. Successive communicators of one generation must have the same
// members, or a barrier of all members between them.
[[nodiscard]] base::Result<std::unique_ptr<Communicator>> make_shm(
    const shmem::Arena& arena, const proto::World& world, proto::SlotId self,
    const CommunicatorOptions& options = {}, const ShmOptions& shm = {});
// As make_shm(), for the ranks of one host of a communicator over several hosts.
[[nodiscard]] base::Result<std::unique_ptr<LocalCommunicator>> make_local_shm(
    const shmem::Arena& arena, const proto::World& world, proto::SlotId self,
    const CommunicatorOptions& options = {}, const ShmOptions& shm = {});

}  // namespace regroup::collective::shm
