// Buffers and folding. docs/design/interfaces.md, Buffers, gives the order of seal and data.
#include "elastic/leaves.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <utility>

#include "collective/reduce/kernels.h"
#include "collective/reduce/publish.h"
#include "collective/reduce/standard_arithmetic.h"
#include "elastic/device_plane.h"
#include "proto/canonical.h"

namespace regroup::elastic {
namespace {

using SumKernels = collective::reduce::Kernels;
constexpr auto kSumOp = static_cast<std::size_t>(collective::Op::kSum);

const SumKernels& sum_kernels() {
  return collective::reduce::kernels_of(collective::reduce::best_simd());
}

std::size_t accumulator_of(bool wide) {
  using collective::reduce::Accumulator;
  return static_cast<std::size_t>(wide ? Accumulator::kFloat64 : Accumulator::kFloat32);
}

constexpr std::size_t kFoldBlock = 4096;  // bytes: stays in the L1 cache
// A leaf of this size has left the cache before it is read again.
constexpr std::size_t kPastCache = 16 << 20;

// to = below[n-1] + (... + (below[0] + weight * values)), each operation rounded once.
class WeightedSum {
 public:
  WeightedSum(std::byte* to, std::vector<const std::byte*> below, bool wide, bool past)
      : to_(to),
        below_(std::move(below)),
        size_(wide ? sizeof(double) : sizeof(float)),
        past_(past),
        scale_(sum_kernels().scale[wide ? 1 : 0]),
        combine_(sum_kernels().combine[accumulator_of(wide)][kSumOp]),
        close_(sum_kernels().close[accumulator_of(wide)][kSumOp]) {}

  // The elements from `first` on. `values` may be null: zeros.
  void run(std::size_t first, std::size_t count, const void* values, double weight) {
    if (below_.empty() && values != nullptr)
      return scale_(to_ + first * size_, values, count, weight, past_);
    const auto* from = static_cast<const std::byte*>(values);
    for (std::size_t done = 0; done < count;) {
      const std::size_t now = std::min(kFoldBlock / size_, count - done);
      if (from == nullptr) {
        std::fill_n(block_.begin(), now * size_, std::byte{0});
      } else {
        scale_(block_.data(), from + done * size_, now, weight, false);
      }
      add((first + done) * size_, now);
      done += now;
    }
  }

 private:
  // Stores the block at byte `at`, plus the sums below.
  void add(std::size_t at, std::size_t count) {
    std::byte* const block = block_.data();
    if (below_.empty()) return std::copy_n(block, count * size_, to_ + at), void();
    for (std::size_t i = 0; i + 1 < below_.size(); ++i)
      combine_(block, below_[i] + at, block, count);
    close_(to_ + at, below_.back() + at, block, count, 1, past_);
  }

  std::byte* const to_;
  const std::vector<const std::byte*> below_;
  const std::size_t size_;
  const bool past_;
  const SumKernels::Scale scale_;
  const SumKernels::Combine combine_;
  const SumKernels::Close close_;
  alignas(collective::reduce::kCacheLine) std::array<std::byte, kFoldBlock> block_;
};

}  // namespace

Leaves::Leaves(shmem::Arena* arena, proto::SlotIndex slot, collective::Dtype dtype,
               DevicePlane* device)
    : arena_(arena), slot_(slot), dtype_(dtype), device_(device) {}

std::atomic<std::uint64_t>& Leaves::seal_word(std::uint32_t buffer) const {
  return arena_->member_slot(slot_).seals[buffer];
}

// A seal of the device that waits for its work is one to withdraw, too.
void Leaves::withdraw_seal(std::uint32_t buffer) const {
  if (device_ != nullptr) return device_->withdraw(buffer);
  seal_word(buffer).store(0, std::memory_order_release);
}

void Leaves::set_place(std::uint32_t buffer, bool on_device) const {
  auto& word = arena_->member_slot(slot_).on_device;
  if (on_device)
    word.fetch_or(1U << buffer, std::memory_order_release);
  else
    word.fetch_and(~(1U << buffer), std::memory_order_release);
}

void Leaves::keep(base::Status status) {
  if (failed_.ok()) failed_ = std::move(status);
}

// The sum is complete in both places when the word changes, so the seal stays valid.
base::Status Leaves::place(bool on_device) {
  on_device_ = on_device;
  for (TreeNode& node : tree_nodes_) {
    if (node.on_device == on_device) continue;
    REGROUP_RETURN_IF_ERROR(on_device ? device_->copy_from_arena(node.buffer)
                                      : device_->copy_to_arena(slot_, node.buffer));
    set_place(node.buffer, on_device);
    node.on_device = on_device;
  }
  return {};
}

void Leaves::begin(proto::Step step) {
  for (std::uint32_t b = 0; b < arena_->spec().buffers_per_slot; ++b) withdraw_seal(b);
  tree_nodes_.clear();
  filling_.reset();
  filled_.clear();
  step_ = step;
}

void Leaves::keep_owned(const std::vector<proto::SlotId>& owners, proto::SlotId self) {
  const auto foreign = [&](const TreeNode& node) {
    for (std::uint32_t leaf = node.leaves.begin; leaf < node.leaves.end; ++leaf) {
      if (owners[leaf] != self) return true;
    }
    return false;
  };
  for (const TreeNode& node : tree_nodes_) {
    if (foreign(node)) withdraw_seal(node.buffer);
  }
  std::erase_if(tree_nodes_, foreign);
}

bool Leaves::holds(std::uint32_t leaf) const {
  return std::any_of(tree_nodes_.begin(), tree_nodes_.end(),
                     [leaf](const TreeNode& n) { return n.leaves.contains(leaf); });
}

std::optional<std::uint32_t> Leaves::free_buffer() const {
  for (std::uint32_t b = 0; b < arena_->spec().buffers_per_slot; ++b) {
    if (std::none_of(tree_nodes_.begin(), tree_nodes_.end(),
                     [b](const TreeNode& n) { return n.buffer == b; }))
      return b;
  }
  return std::nullopt;
}

std::span<std::byte> Leaves::acquire(std::uint32_t leaf) {
  while (!free_buffer()) {
    if (!fold_one()) drop_last();
  }
  filling_ = TreeNode{{leaf, leaf + 1}, *free_buffer(), on_device_};
  set_place(filling_->buffer, on_device_);
  // Other members must see the seal withdrawn before the first byte of the data changes.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (on_device_) return device_->leaf(filling_->buffer);
  return arena_->buffer(slot_, filling_->buffer);
}

std::vector<Leaves::TreeNode> Leaves::siblings_of(proto::Interval* node) const {
  std::vector<TreeNode> out;
  for (auto left = tree_nodes_.rbegin(); left != tree_nodes_.rend(); ++left) {
    if (left->leaves.begin >= node->begin) continue;
    const proto::Interval parent{left->leaves.begin, node->end};
    if (left->leaves.end != node->begin ||
        proto::canonical_parent(arena_->spec().shards, left->leaves) != parent)
      break;
    out.push_back(*left);
    *node = parent;
  }
  return out;
}

void Leaves::fill(std::span<const GradientPart> parts, bool alone) {
  assert(filling_ && filled_.empty() && !filling_->on_device);
  if (!alone) filled_ = siblings_of(&filling_->leaves);
  std::vector<const std::byte*> below;
  for (const TreeNode& node : filled_) below.push_back(arena_->buffer(slot_, node.buffer).data());
  const std::span<std::byte> out = arena_->buffer(slot_, filling_->buffer);
  const bool past = collective::reduce::passes_cache(collective::reduce::Stores::kStream) &&
                    out.size() >= kPastCache;
  const collective::reduce::StandardArithmetic arithmetic;
  WeightedSum sum(out.data(), std::move(below), dtype_ == collective::Dtype::kFloat64, past);
  std::uint64_t at = 0;
  for (const GradientPart& part : parts) {
    sum.run(at, part.begin - at, nullptr, 1);
    sum.run(part.begin, part.count, part.values, part.weight);
    at = part.begin + part.count;
  }
  sum.run(at, arena_->spec().elements - at, nullptr, 1);
  if (past) collective::reduce::complete_stores();
}

void Leaves::withdraw(TreeNode node) {
  withdraw_seal(node.buffer);
  std::erase_if(tree_nodes_, [&](const TreeNode& each) { return each.buffer == node.buffer; });
}

void Leaves::seal() {
  assert(filling_);
  const proto::Seal seal{step_, filling_->leaves};
  if (filling_->on_device)
    keep(device_->seal(filling_->buffer, seal));
  else
    seal_word(filling_->buffer).store(seal.pack(), std::memory_order_release);
  for (const TreeNode& node : std::exchange(filled_, {})) withdraw(node);
  tree_nodes_.insert(
      std::find_if(tree_nodes_.begin(), tree_nodes_.end(),
                   [&](const TreeNode& n) { return n.leaves.begin > filling_->leaves.begin; }),
      *filling_);
  filling_.reset();
}

void Leaves::discard() {
  filled_.clear();
  filling_.reset();
}

bool Leaves::fold_one() {
  const std::uint32_t shards = arena_->spec().shards;
  for (std::size_t i = 0; i + 1 < tree_nodes_.size(); ++i) {
    TreeNode& left = tree_nodes_[i];
    TreeNode& right = tree_nodes_[i + 1];
    const proto::Interval parent{left.leaves.begin, right.leaves.end};
    if (left.leaves.end != right.leaves.begin ||
        proto::canonical_parent(shards, left.leaves) != parent)
      continue;
    const proto::Seal seal{step_, parent};
    right.leaves = parent;
    if (right.on_device) {
      keep(device_->add(left.buffer, right.buffer, seal));
    } else {
      withdraw_seal(right.buffer);
      std::atomic_thread_fence(std::memory_order_seq_cst);
      add(right.buffer, left.buffer);
      seal_word(right.buffer).store(seal.pack(), std::memory_order_release);
    }
    withdraw_seal(left.buffer);
    tree_nodes_.erase(tree_nodes_.begin() + static_cast<std::ptrdiff_t>(i));
    return true;
  }
  return false;
}

void Leaves::drop_last() { withdraw(tree_nodes_.back()); }

void Leaves::add(std::uint32_t into, std::uint32_t from) {
  const std::span<std::byte> a = arena_->buffer(slot_, into);
  const std::span<const std::byte> b = arena_->buffer(slot_, from);
  // Standard rounding as in TreeFold: how many leaves are folded here depends on the number of
  // members, but the bits must not.
  const collective::reduce::StandardArithmetic arithmetic;
  const bool wide = dtype_ == collective::Dtype::kFloat64;
  sum_kernels().combine[accumulator_of(wide)][kSumOp](a.data(), b.data(), a.data(),
                                                      a.size() / collective::size_of(dtype_));
}

std::optional<std::vector<SealedSum>> sealed_sums(const shmem::Arena& arena, proto::Step step,
                                                  const std::vector<proto::SlotId>& owners) {
  struct Chosen {
    const std::atomic<std::uint64_t>* word;
    std::uint64_t bits;
  };
  std::vector<Chosen> chosen;
  std::vector<SealedSum> sums;
  for (std::uint32_t leaf = 0; leaf < owners.size();) {
    if (owners[leaf].node != arena.spec().node) {
      ++leaf;
      continue;
    }
    const proto::SlotIndex slot = owners[leaf].slot;
    const shmem::MemberSlot& member = arena.member_slot(slot);
    SealedSum best{{leaf, leaf}, slot};
    Chosen seal_of_best{};
    for (std::uint32_t b = 0; b < arena.spec().buffers_per_slot; ++b) {
      const auto& word = member.seals[b];
      const std::uint64_t bits = word.load(std::memory_order_acquire);
      const auto seal = proto::Seal::unpack(bits);
      if (seal.step != (step & proto::kMaxStep) || seal.leaves.begin != leaf ||
          seal.leaves.end <= best.leaves.end)
        continue;
      best.leaves = seal.leaves;
      best.buffer = b;
      seal_of_best = {&word, bits};
    }
    if (best.leaves.size() == 0) return std::nullopt;
    best.on_device = (member.on_device.load(std::memory_order_acquire) >> best.buffer & 1) != 0;
    chosen.push_back(seal_of_best);
    sums.push_back(best);
    leaf = best.leaves.end;
  }
  // An owner may fold meanwhile and reuse a buffer that is chosen here. If no seal has changed, all
  // were valid at one instant: then every leaf was complete, and no owner has one left to write.
  for (const Chosen& seal : chosen) {
    if (seal.word->load(std::memory_order_acquire) != seal.bits) return std::nullopt;
  }
  return sums;
}

std::vector<collective::Partial> partials_of(const shmem::Arena& arena,
                                             const std::vector<SealedSum>& sums) {
  std::vector<collective::Partial> partials;
  for (const SealedSum& sum : sums)
    partials.push_back({sum.leaves, arena.buffer(sum.slot, sum.buffer)});
  return partials;
}

}  // namespace regroup::elastic
