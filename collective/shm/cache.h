// How large the processor's cache is, as the kernel tells it: what the C library reads from an AMD processor
// is the sum over all chips of a socket, of which a thread uses one. And which results are stored past it.
#pragma once

#include <cstddef>
#include <string>

#include "collective/operation.h"
#include "collective/shm/publish.h"

namespace regroup::collective {

// Bytes of the last cache before memory that a processor uses; kAssumedCache if that cannot be told. Any
// thread. Source: Documentation/ABI/testing/sysfs-devices-system-cpu of Linux.
[[nodiscard]] std::size_t last_level_cache(const std::string& folder = "/sys/devices/system/cpu/cpu0/cache");

inline constexpr std::size_t kAssumedCache = 8 << 20;

// What a rank stores for its caller to find.
enum class StoreHint {
  kReceived,  // copies and sums of what came from other ranks
  kReduced,   // sums of what lies in the arena, with nothing in between
  kCopied,    // a root's, or its own block: what one rank gave and nobody else writes
  kKept,      // over what was just read, in place, or what the same ranks read next: sum_partials()
};
[[nodiscard]] StoreHint store_hint(Kind kind, bool in_place, bool bounced);
// Bytes that the ranks touch of inputs and results, `in` and `out` of all of them together. Those that are
// the same memory count once, but where results replace what was just read (Written::kKept) twice.
[[nodiscard]] std::size_t footprint(Kind kind, bool in_place, std::size_t in, std::size_t out);
// Past a last-level cache of `cache` bytes, or through it, where the ranks touch so many with the stages in
// between. Measured for two ranks: docs/design/stages.md.
[[nodiscard]] Stores stores_of(StoreHint what, std::size_t touched, std::size_t cache);

}  // namespace regroup::collective
