// Where a share of the state lies in the arena of a node that gets it from another one, as what the others
// say of its length has it.
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

// What rank `from` says: that the state has `length` bytes. `told`: what those before it have said. kDataLoss
// if that is not the same, or there is no room for it.
[[nodiscard]] core::Status check_length(const core::Arena& arena, int from, std::uint64_t length,
                                        std::optional<std::uint64_t> told);

}  // namespace regroup::elastic
