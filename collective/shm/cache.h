// Size of the last-level cache as the kernel reports it, and which stores bypass it. The C library
// cannot tell: on an AMD processor it returns the sum over all chips of a socket, of which a thread
// uses one.
#pragma once

#include <cstddef>
#include <string>

#include "collective/reduce/publish.h"
#include "regroup/operation.h"

namespace regroup::collective::shm {

// Bytes of the last cache level before memory; kAssumedCache if the kernel does not tell. Any
// thread. Source: Documentation/ABI/testing/sysfs-devices-system-cpu of Linux.
[[nodiscard]] std::size_t last_level_cache(
    const std::string& folder = "/sys/devices/system/cpu/cpu0/cache");

inline constexpr std::size_t kAssumedCache = 8 << 20;

// What a rank stores into a result, which decides whether the stores bypass the cache.
enum class StoreHint {
  kReceived,  // copies and sums of data that passed through bounce buffers
  kReduced,   // sums of inputs in the arena, read in place
  kCopied,    // data of one source: from the root, or the own block of a rank
  kKept,      // replaces an input just read, or is read next by the same ranks (a tree reduction)
};
[[nodiscard]] StoreHint store_hint(Kind kind, bool in_place, bool bounced);
// Bytes of inputs (`in`) and results (`out`) that all ranks together touch. Memory that is both
// counts once, except where results replace inputs that were just read (StoreHint::kKept): it
// counts twice.
[[nodiscard]] std::size_t footprint(Kind kind, bool in_place, std::size_t in, std::size_t out);
// Stores for a result when the ranks touch `touched` bytes, bounce buffers included, on a machine
// with `cache` bytes of last-level cache. Thresholds measured with two ranks:
// docs/design/bounce_buffers.md.
[[nodiscard]] reduce::Stores stores_of(StoreHint what, std::size_t touched, std::size_t cache);

}  // namespace regroup::collective::shm
