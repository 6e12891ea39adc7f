// A share of the state in the arena of a node that receives it from another node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/arena.h"
#include "core/status.h"
#include "elastic/donors.h"

namespace regroup::elastic {

struct Share {
  Share(const core::Arena& arena, Chunks chunks, std::uint64_t used);
  std::span<std::byte> crcs, data;
};

// Checks the length of the state as sent by rank `from` against `expected`, the length that earlier ranks
// sent, and the reserved memory: kDataLoss.
[[nodiscard]] core::Status check_length(const core::Arena& arena, int from, std::uint64_t length,
                                        std::optional<std::uint64_t> expected);

}  // namespace regroup::elastic
