// A state transfer and a step, packed into one word of the arena: docs/design/catch_up.md.
#pragma once

#include <cstdint>

#include "proto/node_message.h"
#include "proto/world.h"

namespace regroup::proto {

// Layout: state transfer 24 bits | step 40. 0 is none.
struct TransferStep {
  TransferId transfer = 0;
  Step step = 0;

  [[nodiscard]] constexpr std::uint64_t pack() const {
    return static_cast<std::uint64_t>(transfer) << 40 | step;
  }
  [[nodiscard]] static constexpr TransferStep unpack(std::uint64_t bits) {
    return {static_cast<TransferId>(bits >> 40), bits & ((1ULL << 40) - 1)};
  }
  bool operator==(const TransferStep&) const = default;
};
inline constexpr TransferId kMaxTransfer = (1U << 24) - 1;

// Initial values of a chunk's CRC32C: a chunk of another state transfer or step fails the check.
[[nodiscard]] constexpr std::uint32_t snapshot_salt(TransferId transfer) { return transfer; }
[[nodiscard]] constexpr std::uint32_t result_salt(Step step) {
  return static_cast<std::uint32_t>(step);
}

}  // namespace regroup::proto
