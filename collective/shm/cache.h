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

// Past a last-level cache of `cache` bytes: results of all ranks, `bytes` together, above half of it (a
// root's from there on), or that fill it with the `read` bytes that they are made of and go through.
[[nodiscard]] Stores stores_of(Kind kind, std::size_t bytes, std::size_t read, std::size_t cache);

}  // namespace regroup::collective
