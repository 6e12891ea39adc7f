// A share of the state in the arena of a host that receives it from another host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/status.h"
#include "elastic/donors.h"
#include "shmem/arena.h"

namespace regroup::elastic {

struct Share {
  Share(const shmem::Arena& arena, Chunks chunks, std::uint64_t used);
  std::span<std::byte> crcs;
  std::span<std::byte> data;
};

// Checks the length of the state as sent by rank `from` against `expected`, the length that earlier
// ranks sent, and the reserved memory: kDataLoss.
[[nodiscard]] base::Status check_length(const shmem::Arena& arena, int from, std::uint64_t length,
                                        std::optional<std::uint64_t> expected);

}  // namespace regroup::elastic
