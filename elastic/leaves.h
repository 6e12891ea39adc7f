// This member's gradient buffers, in the arena or in memory of its GPU: their contents and seals.
// Siblings are folded by fill(), or when no buffer is free (docs/design/interfaces.md, Buffers).
// Training thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "collective/tree_reducer.h"
#include "elastic/sealed_sums.h"
#include "regroup/session.h"
#include "shmem/arena.h"

namespace regroup::elastic {

class DevicePlane;

class Leaves {
 public:
  // `device`: where leaves may lie on a GPU, else null; must outlive this object.
  Leaves(shmem::Arena* arena, proto::SlotIndex slot, collective::Dtype dtype,
         DevicePlane* device = nullptr);

  // From now on leaves are filled on the GPU, or in the arena; the sums there are move. Errors as
  // of DevicePlane.
  [[nodiscard]] base::Status place(bool on_device);
  // The first failure of work on the device that acquire() or seal() has put there.
  [[nodiscard]] const base::Status& status() const { return failed_; }

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
  // `alone`: adds no siblings.
  void fill(std::span<const GradientPart> parts, bool alone = false);
  // Seals the buffer acquired last, which is complete. The caller then rings the doorbells. On the
  // GPU: seals it once the work on the caller's stream is done; the doorbells then ring.
  void seal();
  // Gives the buffer acquired last back, which is not sealed.
  void discard();
  // The number of that buffer.
  [[nodiscard]] std::uint32_t buffer() const { return filling_->buffer; }

 private:
  struct TreeNode {
    proto::Interval leaves;
    std::uint32_t buffer;
    bool on_device = false;
  };
  [[nodiscard]] std::optional<std::uint32_t> free_buffer() const;
  // The sealed nodes that end where `node` begins and are its sibling, that of their parent, and so
  // on; the node over all of them.
  [[nodiscard]] std::vector<TreeNode> siblings_of(proto::Interval* node) const;
  [[nodiscard]] bool fold_one();
  void drop_last();
  void add(std::uint32_t into, std::uint32_t from);
  void withdraw(TreeNode node);
  void withdraw_seal(std::uint32_t buffer) const;
  void set_place(std::uint32_t buffer, bool on_device) const;
  void keep(base::Status status);  // if it is the first failure
  [[nodiscard]] std::atomic<std::uint64_t>& seal_word(std::uint32_t buffer) const;

  shmem::Arena* const arena_;
  const proto::SlotIndex slot_;
  const collective::Dtype dtype_;
  DevicePlane* const device_;
  bool on_device_ = false;  // leaves that are filled now
  base::Status failed_;
  proto::Step step_ = 0;
  std::vector<TreeNode> tree_nodes_;  // sealed, by first leaf
  std::optional<TreeNode> filling_;
  std::vector<TreeNode> filled_;  // what fill() has added to it
};

// The sums of sealed_sums(), all of which lie in the arena.
[[nodiscard]] std::vector<collective::Partial> partials_of(const shmem::Arena& arena,
                                                           const std::vector<SealedSum>& sums);

}  // namespace regroup::elastic
