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

// Whether large data in ordinary memory is copied once, by cross-memory attach (CMA:
// process_vm_readv), instead of through bounce buffers. kAuto: for the operations that gain by it.
enum class SingleCopyMode : std::uint8_t { kAuto, kAlways, kNever };

// Which stores fill bounce buffers: tuned by measured cost (store_tuner.h), always through the
// cache, or always past it.
enum class StorePolicy : std::uint8_t { kTuned, kPlain, kStream };

// Whether small data travels in inline chunks (inline_chunk.h). kAuto: where this processor gains
// by it. The other two are for tests.
enum class InlineMode : std::uint8_t { kAuto, kAlways, kNever };

// How data moves.
struct ShmOptions {
  SingleCopyMode single_copy = SingleCopyMode::kAuto;  // the same in all members
  StorePolicy store_policy = StorePolicy::kTuned;
  InlineMode inline_mode = InlineMode::kAuto;  // the same in all members
  std::optional<int> numa_node;                // of this member; empty: derived from its affinity
  // Limits how long a member spins; nullptr: the system's clock.
  base::TimePoint (*spin_clock)() = nullptr;
};

// Opens the communicator of `world` for the member at `self`. Does not block and does not access
// the arena before the first operation. `arena` must outlive the communicator. kInvalidArgument if
// the ranks span several nodes or `self` is not among them. After a failed operation every later
// one fails with the same status. Successive communicators of one generation must have the same
// members, or a barrier of all members between them.
[[nodiscard]] base::Result<std::unique_ptr<Communicator>> make_shm(
    const shmem::Arena& arena, const proto::World& world, proto::SlotId self,
    const CommunicatorOptions& options = {}, const ShmOptions& shm = {});
// Likewise, as a part of a communicator over several hosts.
[[nodiscard]] base::Result<std::unique_ptr<LocalCommunicator>> make_local_shm(
    const shmem::Arena& arena, const proto::World& world, proto::SlotId self,
    const CommunicatorOptions& options = {}, const ShmOptions& shm = {});

}  // namespace regroup::collective::shm
