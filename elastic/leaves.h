// The gradient buffers of this member in the arena: which hold what, and their seals. Siblings are folded
// only when no buffer is free (docs/design/interfaces.md, Buffers). Training thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collective/communicator.h"
#include "core/arena.h"

namespace regroup::elastic {

class Leaves {
 public:
  Leaves(core::Arena* arena, core::SlotIndex slot, collective::Dtype dtype);

  // Forgets everything of earlier steps: their seals are withdrawn before a buffer is written again.
  void begin(core::Step step);
  // A new World shares the leaves as `owners` says: gives up every node that is not wholly this member's.
  void keep_owned(const std::vector<core::Seat>& owners, core::Seat self);
  [[nodiscard]] bool holds(std::uint32_t leaf) const;
  // A buffer for `leaf`. May fold or, if nothing can be folded, give up a sealed node, which must be computed
  // again.
  [[nodiscard]] std::span<std::byte> acquire(std::uint32_t leaf);
  // The buffer acquired last is complete. The caller rings.
  void seal();

 private:
  struct Node {
    core::Interval leaves;
    std::uint32_t buffer;
  };
  [[nodiscard]] std::optional<std::uint32_t> free_buffer() const;
  [[nodiscard]] bool fold_one();
  void give_up_last();
  void add(std::uint32_t into, std::uint32_t from);
  [[nodiscard]] std::atomic<std::uint64_t>& seal_word(std::uint32_t buffer) const;

  core::Arena* const arena_;
  const core::SlotIndex slot_;
  const collective::Dtype dtype_;
  core::Step step_ = 0;
  std::vector<Node> nodes_;  // sealed, by first leaf
  std::optional<Node> filling_;
};

// The largest sealed nodes of `step` that together cover every leaf that an owner on this node has, each at
// its owner's line; nothing if one is missing.
[[nodiscard]] std::optional<std::vector<collective::Partial>> sealed_partials(
    const core::Arena& arena, core::Step step, const std::vector<core::Seat>& owners);

}  // namespace regroup::elastic
