// Buffers and folding. docs/design/interfaces.md, Buffers, gives the order of seal and data.
#include "elastic/leaves.h"

#include <algorithm>
#include <cassert>

#include "collective/reduce/standard_arithmetic.h"
#include "proto/canonical.h"

namespace regroup::elastic {
namespace {

template <class T>
void add_into(std::span<std::byte> into, std::span<const std::byte> from) {
  auto* a = reinterpret_cast<T*>(into.data());
  const auto* b = reinterpret_cast<const T*>(from.data());
  for (std::size_t i = 0; i < into.size() / sizeof(T); ++i) a[i] = b[i] + a[i];
}

}  // namespace

Leaves::Leaves(shmem::Arena* arena, proto::SlotIndex slot, collective::Dtype dtype)
    : arena_(arena), slot_(slot), dtype_(dtype) {}

std::atomic<std::uint64_t>& Leaves::seal_word(std::uint32_t buffer) const {
  return arena_->member_slot(slot_).seals[buffer];
}

void Leaves::begin(proto::Step step) {
  for (std::uint32_t b = 0; b < arena_->spec().buffers_per_slot; ++b)
    seal_word(b).store(0, std::memory_order_release);
  tree_nodes_.clear();
  filling_.reset();
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
    if (foreign(node)) seal_word(node.buffer).store(0, std::memory_order_release);
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
  filling_ = TreeNode{{leaf, leaf + 1}, *free_buffer()};
  // Other members must see the seal withdrawn before the first byte of the data changes.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return arena_->buffer(slot_, filling_->buffer);
}

void Leaves::seal() {
  assert(filling_);
  seal_word(filling_->buffer)
      .store(proto::Seal{step_, filling_->leaves}.pack(), std::memory_order_release);
  tree_nodes_.insert(
      std::find_if(tree_nodes_.begin(), tree_nodes_.end(),
                   [&](const TreeNode& n) { return n.leaves.begin > filling_->leaves.begin; }),
      *filling_);
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
    seal_word(right.buffer).store(0, std::memory_order_release);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    add(right.buffer, left.buffer);
    right.leaves = parent;
    seal_word(right.buffer).store(proto::Seal{step_, parent}.pack(), std::memory_order_release);
    seal_word(left.buffer).store(0, std::memory_order_release);
    tree_nodes_.erase(tree_nodes_.begin() + static_cast<std::ptrdiff_t>(i));
    return true;
  }
  return false;
}

void Leaves::drop_last() {
  seal_word(tree_nodes_.back().buffer).store(0, std::memory_order_release);
  tree_nodes_.pop_back();
}

void Leaves::add(std::uint32_t into, std::uint32_t from) {
  const std::span<std::byte> a = arena_->buffer(slot_, into);
  const std::span<const std::byte> b = arena_->buffer(slot_, from);
  // Standard rounding as in TreeFold: how many leaves are folded here depends on the number of
  // members, but the bits must not.
  const collective::reduce::StandardArithmetic arithmetic;
  if (dtype_ == collective::Dtype::kFloat64) {
    add_into<double>(a, b);
  } else {
    add_into<float>(a, b);
  }
}

std::optional<std::vector<collective::Partial>> sealed_partials(
    const shmem::Arena& arena, proto::Step step, const std::vector<proto::SlotId>& owners) {
  struct Chosen {
    const std::atomic<std::uint64_t>* word;
    std::uint64_t bits;
  };
  std::vector<Chosen> chosen;
  std::vector<collective::Partial> partials;
  for (std::uint32_t leaf = 0; leaf < owners.size();) {
    if (owners[leaf].node != arena.spec().node) {
      ++leaf;
      continue;
    }
    const proto::SlotIndex slot = owners[leaf].slot;
    proto::Interval best{leaf, leaf};
    std::uint32_t buffer = 0;
    Chosen seal_of_best{};
    for (std::uint32_t b = 0; b < arena.spec().buffers_per_slot; ++b) {
      const auto& word = arena.member_slot(slot).seals[b];
      const std::uint64_t bits = word.load(std::memory_order_acquire);
      const auto seal = proto::Seal::unpack(bits);
      if (seal.step != (step & proto::kMaxStep) || seal.leaves.begin != leaf ||
          seal.leaves.end <= best.end)
        continue;
      best = seal.leaves;
      buffer = b;
      seal_of_best = {&word, bits};
    }
    if (best.size() == 0) return std::nullopt;
    chosen.push_back(seal_of_best);
    partials.push_back({best, arena.buffer(slot, buffer)});
    leaf = best.end;
  }
  // An owner may fold meanwhile and reuse a buffer that is chosen here. If no seal has changed, all
  // were valid at one instant: then every leaf was complete, and no owner has one left to write.
  for (const Chosen& seal : chosen) {
    if (seal.word->load(std::memory_order_acquire) != seal.bits) return std::nullopt;
  }
  return partials;
}

}  // namespace regroup::elastic
