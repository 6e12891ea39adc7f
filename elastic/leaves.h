// This member's gradient buffers in the arena: their contents and seals. Siblings are folded by
// fill(), or when no buffer is free (docs/design/interfaces.md, Buffers). Training thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collective/tree_reducer.h"
#include "regroup/session.h"
#include "shmem/arena.h"

namespace regroup::elastic {

class Leaves {
 public:
  Leaves(shmem::Arena* arena, proto::SlotIndex slot, collective::Dtype dtype);

  // Drops the contents of earlier steps: withdraws their seals before any buffer is written again.
  void begin(proto::Step step);
  // A new World assigns the leaves to `owners`: drops every sum that is not wholly this member's.
  void keep_owned(const std::vector<proto::SlotId>& owners, proto::SlotId self);
  [[nodiscard]] bool holds(std::uint32_t leaf) const;
  // Returns a buffer for `leaf`. May fold two siblings or, if none can be folded, drop a sealed
  // sum, whose leaves must then be computed again.
  [[nodiscard]] std::span<std::byte> acquire(std::uint32_t leaf);
  // Fills the buffer acquired last with the parts, which ascend and do not overlap, and zeros
  // elsewhere; adds the sealed sums of this member that, one after the other, are its siblings.
  // These stay sealed until seal(), so that nothing is lost if the member is killed meanwhile.
  void fill(std::span<const GradientPart> parts);
  // Seals the buffer acquired last, which is complete. The caller then rings the doorbells.
  void seal();

 private:
  struct TreeNode {
    proto::Interval leaves;
    std::uint32_t buffer;
  };
  [[nodiscard]] std::optional<std::uint32_t> free_buffer() const;
  // The sealed nodes that end where `node` begins and are its sibling, that of their parent, and so
  // on; the node over all of them.
  [[nodiscard]] std::vector<TreeNode> siblings_of(proto::Interval* node) const;
  [[nodiscard]] bool fold_one();
  void drop_last();
  void add(std::uint32_t into, std::uint32_t from);
  void withdraw(TreeNode node);
  [[nodiscard]] std::atomic<std::uint64_t>& seal_word(std::uint32_t buffer) const;

  shmem::Arena* const arena_;
  const proto::SlotIndex slot_;
  const collective::Dtype dtype_;
  proto::Step step_ = 0;
  std::vector<TreeNode> tree_nodes_;  // sealed, by first leaf
  std::optional<TreeNode> filling_;
  std::vector<TreeNode> filled_;  // what fill() has added to it
};

// The largest sealed sums of `step` that together cover every leaf owned on this host, each in its
// owner's slot; empty while one is missing.
[[nodiscard]] std::optional<std::vector<collective::Partial>> sealed_partials(
    const shmem::Arena& arena, proto::Step step, const std::vector<proto::SlotId>& owners);

}  // namespace regroup::elastic
