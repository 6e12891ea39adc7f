// The size of the last-level cache as the kernel reports it, and the choice of stores that bypass
// it. (sysconf() of the C library returns, on an AMD processor, the sum over all dies of a socket,
// while a thread uses the cache of one.)
#pragma once

#include <cstddef>
#include <string>

#include "collective/reduce/publish.h"
#include "regroup/operation.h"

namespace regroup::collective::shm {

// The size in bytes of the last cache level before memory; kAssumedCache if the kernel does not
// report it. Any thread. Source: Documentation/ABI/testing/sysfs-devices-system-cpu of Linux.
[[nodiscard]] std::size_t last_level_cache(
    const std::string& folder = "/sys/devices/system/cpu/cpu0/cache");

inline constexpr std::size_t kAssumedCache = 8 << 20;

// The kind of data that a rank stores into a result; decides whether the stores bypass the cache.
enum class StoreHint {
  kReceived,  // copies and sums of data that passed through bounce buffers
  kReduced,   // sums of inputs in the arena, read in place
  kCopied,    // copies of a single source: the root's data, or a rank's own block
  kKept,      // replaces an input just read, or is read next by the same ranks (a tree reduction)
};
[[nodiscard]] StoreHint store_hint(Kind kind, bool in_place, bool bounced);
// Number of bytes of inputs (`in`) and results (`out`) that all ranks together touch. Memory that
// is both counts once, but twice if results replace inputs that were just read (StoreHint::kKept).
[[nodiscard]] std::size_t footprint(Kind kind, bool in_place, std::size_t in, std::size_t out);
// The stores to use for a result when the ranks touch `touched` bytes, bounce buffers included, on
// a machine with `cache` bytes of last-level cache. Thresholds were measured with two ranks:
// docs/design/bounce_buffers.md.
[[nodiscard]] reduce::Stores stores_of(StoreHint what, std::size_t touched, std::size_t cache);

}  // namespace regroup::collective::shm
