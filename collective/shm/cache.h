// How large the processor's cache is, as the kernel tells it: what the C library reads from an AMD processor
// is the sum over all chips of a socket, of which a thread uses one.
#pragma once

#include <cstddef>
#include <string>

namespace regroup::collective {

// Bytes of the last cache before memory that a processor uses; kAssumedCache if that cannot be told. Any
// thread. Source: Documentation/ABI/testing/sysfs-devices-system-cpu of Linux.
[[nodiscard]] std::size_t last_level_cache(const std::string& folder = "/sys/devices/system/cpu/cpu0/cache");

inline constexpr std::size_t kAssumedCache = 8 << 20;

}  // namespace regroup::collective
