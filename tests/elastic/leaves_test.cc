// Buffers, seals and folding: whatever the order and however few buffers, the reduced bits are
// those of the tree.
#include "elastic/leaves.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "base/cpu.h"
#include "proto/canonical.h"

namespace regroup::elastic {
namespace {

constexpr std::uint64_t kElements = 33;

shmem::Arena make_arena(std::uint32_t shards, std::uint32_t buffers, proto::SlotIndex slots = 2) {
  shmem::ArenaSpec spec;
  spec.slots = slots;
  spec.shards = shards;
  spec.buffers_per_slot = buffers;
  spec.elements = kElements;
  auto arena = shmem::Arena::create(spec);
  EXPECT_TRUE(arena.ok()) << arena.status().to_string();
  for (proto::SlotIndex slot = 0; slot < slots; ++slot) arena->assign_slot(slot, slot);
  return std::move(*arena);
}

std::vector<float> leaf_values(std::uint32_t leaf) {
  std::mt19937 random(leaf + 1);
  std::vector<float> values(kElements);
  for (float& value : values) value = static_cast<float>(random()) / 1e7F - 200.0F;
  return values;
}

std::vector<float> tree_sum(proto::Interval node) {
  if (node.size() == 1) return leaf_values(node.begin);
  const std::uint32_t m = proto::canonical_split(node);
  std::vector<float> sum = tree_sum({node.begin, m});
  const std::vector<float> right = tree_sum({m, node.end});
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += right[i];
  return sum;
}

void fill(std::span<std::byte> buffer, std::uint32_t leaf) {
  const std::vector<float> values = leaf_values(leaf);
  std::memcpy(buffer.data(), values.data(), buffer.size());
}

void compute(Leaves& leaves, std::uint32_t leaf) {
  fill(leaves.acquire(leaf), leaf);
  leaves.seal();
}

std::optional<std::vector<collective::Partial>> sealed_partials(
    const shmem::Arena& arena, proto::Step step, const std::vector<proto::SlotId>& owners) {
  const auto sums = sealed_sums(arena, step, owners);
  if (!sums) return std::nullopt;
  return partials_of(arena, *sums);
}

void expect_canonical(const std::vector<collective::Partial>& partials) {
  for (const collective::Partial& partial : partials) {
    const std::vector<float> want = tree_sum(partial.leaves);
    EXPECT_EQ(std::memcmp(partial.data.data(), want.data(), partial.data.size()), 0)
        << partial.leaves.begin << ".." << partial.leaves.end;
  }
}

TEST(Leaves, AContiguousRangeFitsTheReservedBuffersWithoutLoss) {
  for (std::uint32_t shards = 1; shards <= 70; ++shards) {
    shmem::Arena arena = make_arena(shards, proto::canonical_buffers(shards));
    for (std::uint32_t begin = 0; begin < shards; begin += 3) {
      Leaves leaves(&arena, 0, collective::Dtype::kFloat32);
      leaves.begin(5);
      for (std::uint32_t leaf = begin; leaf < shards; ++leaf) compute(leaves, leaf);
      for (std::uint32_t leaf = begin; leaf < shards; ++leaf) {
        ASSERT_TRUE(leaves.holds(leaf)) << "V=" << shards << " begin=" << begin << " leaf=" << leaf;
      }
      if (begin == 0) {
        const auto partials = sealed_partials(arena, 5, std::vector<proto::SlotId>(shards));
        ASSERT_TRUE(partials);
        expect_canonical(*partials);
      }
    }
  }
}

TEST(Leaves, KeepsLeavesApartWhileBuffersAreFree) {
  shmem::Arena arena = make_arena(4, 4);
  Leaves leaves(&arena, 0, collective::Dtype::kFloat32);
  leaves.begin(1);
  for (std::uint32_t leaf = 0; leaf < 4; ++leaf) compute(leaves, leaf);
  EXPECT_EQ(sealed_partials(arena, 1, std::vector<proto::SlotId>(4))->size(), 4U);
}

TEST(Leaves, RecomputesASealThatCannotBeFolded) {
  shmem::Arena arena = make_arena(8, 2);
  Leaves leaves(&arena, 0, collective::Dtype::kFloat32);
  leaves.begin(1);
  for (const std::uint32_t leaf : {1U, 6U, 3U}) compute(leaves, leaf);
  EXPECT_TRUE(leaves.holds(1));
  EXPECT_FALSE(leaves.holds(6));
  EXPECT_TRUE(leaves.holds(3));
}

// As torch.set_flush_denormal(True) does in the training thread. Sums of the collectives keep
// denormals, too.
TEST(Leaves, FoldDenormalsThoughTheThreadFlushesThem) {
  shmem::Arena arena = make_arena(2, 2);
  Leaves leaves(&arena, 0, collective::Dtype::kFloat32);
  const std::vector<float> tiny(kElements, std::numeric_limits<float>::denorm_min());
  const std::vector<float> sum(kElements, 2 * std::numeric_limits<float>::denorm_min());
  leaves.begin(1);
  for (std::uint32_t leaf = 0; leaf < 2; ++leaf) {
    const std::span<std::byte> buffer = leaves.acquire(leaf);
    std::memcpy(buffer.data(), tiny.data(), buffer.size());
    leaves.seal();
  }
  const base::FloatMode before = base::float_mode();
  base::set_float_mode(base::kFastFloatMode);
  // Both buffers are in use, so the two leaves are folded.
  static_cast<void>(leaves.acquire(0));
  base::set_float_mode(before);
  const std::span<const std::byte> folded = arena.buffer(0, 1);
  EXPECT_EQ(std::memcmp(folded.data(), sum.data(), folded.size()), 0);
}

// The parts of a leaf: two tensors with a gap between them and one at the end, and a parameter
// without a gradient.
std::vector<GradientPart> parts_of(const std::vector<float>& unweighted, double weight) {
  return {{0, 7, unweighted.data(), weight},
          {10, 4, nullptr, weight},
          {16, 16, unweighted.data() + 16, weight}};
}

std::vector<float> leaf_of_parts(std::uint32_t leaf, double weight) {
  std::vector<float> values = leaf_values(leaf);
  for (std::size_t i = 0; i < kElements; ++i) {
    const bool given = i < 7 || (i >= 16 && i < 32);
    values[i] = given ? values[i] * static_cast<float>(weight) : 0.0F;
  }
  return values;
}

std::vector<float> tree_sum_of_parts(proto::Interval node, double weight) {
  if (node.size() == 1) return leaf_of_parts(node.begin, weight);
  const std::uint32_t m = proto::canonical_split(node);
  std::vector<float> sum = tree_sum_of_parts({node.begin, m}, weight);
  const std::vector<float> right = tree_sum_of_parts({m, node.end}, weight);
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += right[i];
  return sum;
}

void fill_with_parts(Leaves& leaves, std::uint32_t leaf, double weight) {
  const std::vector<float> values = leaf_values(leaf);
  const std::span<std::byte> buffer = leaves.acquire(leaf);
  std::fill(buffer.begin(), buffer.end(), std::byte{0x5a});
  leaves.fill(parts_of(values, weight));
  leaves.seal();
}

TEST(Leaves, FillWeighsAndFoldsInTheOrderOfTheTree) {
  constexpr double kWeight = 1.0 / 3;
  for (std::uint32_t shards = 1; shards <= 70; ++shards) {
    shmem::Arena arena = make_arena(shards, proto::canonical_buffers(shards));
    for (std::uint32_t begin = 0; begin < shards; begin += 3) {
      Leaves leaves(&arena, 0, collective::Dtype::kFloat32);
      leaves.begin(5);
      for (std::uint32_t leaf = begin; leaf < shards; ++leaf)
        fill_with_parts(leaves, leaf, kWeight);
      for (std::uint32_t leaf = begin; leaf < shards; ++leaf) ASSERT_TRUE(leaves.holds(leaf));
      std::vector<proto::SlotId> owners(shards);
      for (std::uint32_t leaf = 0; leaf < begin; ++leaf) owners[leaf] = {1, 0};
      const auto partials = sealed_partials(arena, 5, owners);
      ASSERT_TRUE(partials) << "V=" << shards << " begin=" << begin;
      EXPECT_EQ(partials->size(), proto::canonical_cover(shards, {begin, shards}).size());
      for (const collective::Partial& partial : *partials) {
        const std::vector<float> want = tree_sum_of_parts(partial.leaves, kWeight);
        ASSERT_EQ(std::memcmp(partial.data.data(), want.data(), partial.data.size()), 0)
            << "V=" << shards << " " << partial.leaves.begin << ".." << partial.leaves.end;
      }
    }
  }
}

// A member that is killed while it fills a leaf loses that leaf only.
TEST(Leaves, FillKeepsTheSiblingsSealedUntilTheirSumIs) {
  shmem::Arena arena = make_arena(4, 3);
  Leaves leaves(&arena, 0, collective::Dtype::kFloat32);
  leaves.begin(2);
  for (const std::uint32_t leaf : {0U, 1U, 2U}) fill_with_parts(leaves, leaf, 1);
  const auto sealed = [&] {
    std::vector<proto::Interval> out;
    for (std::uint32_t b = 0; b < 3; ++b) {
      const auto seal = proto::Seal::unpack(arena.member_slot(0).seals[b].load());
      if (seal.step == 2) out.push_back(seal.leaves);
    }
    std::ranges::sort(out);
    return out;
  };
  const std::vector<proto::Interval> before = {{0, 2}, {2, 3}};
  EXPECT_EQ(sealed(), before);
  const std::vector<float> values = leaf_values(3);
  static_cast<void>(leaves.acquire(3));
  leaves.fill(parts_of(values, 1));
  EXPECT_EQ(sealed(), before);
  leaves.seal();
  EXPECT_EQ(sealed(), (std::vector<proto::Interval>{{0, 4}}));
  const auto partials = sealed_partials(arena, 2, std::vector<proto::SlotId>(4));
  ASSERT_TRUE(partials);
  const std::vector<float> want = tree_sum_of_parts({0, 4}, 1);
  EXPECT_EQ(std::memcmp(partials->front().data.data(), want.data(), kElements * sizeof(float)), 0);
}

// Weights and sums are rounded as the collectives', whatever mode the framework has set.
TEST(Leaves, FillKeepsDenormalsThoughTheThreadFlushesThem) {
  shmem::Arena arena = make_arena(2, 2);
  Leaves leaves(&arena, 0, collective::Dtype::kFloat32);
  const std::vector<float> tiny(kElements, 2 * std::numeric_limits<float>::denorm_min());
  leaves.begin(1);
  const base::FloatMode before = base::float_mode();
  base::set_float_mode(base::kFastFloatMode);
  const GradientPart all{0, kElements, tiny.data(), 0.5};
  for (std::uint32_t leaf = 0; leaf < 2; ++leaf) {
    static_cast<void>(leaves.acquire(leaf));
    leaves.fill(std::span(&all, 1));
    leaves.seal();
  }
  base::set_float_mode(before);
  const auto partials = sealed_partials(arena, 1, std::vector<proto::SlotId>(2));
  ASSERT_TRUE(partials);
  ASSERT_EQ(partials->size(), 1U);
  EXPECT_EQ(std::memcmp(partials->front().data.data(), tiny.data(), kElements * sizeof(float)), 0);
}

// Large leaves bypass the cache.
TEST(Leaves, FillOfALargeLeafHasTheSameBits) {
  shmem::ArenaSpec spec;
  spec.slots = 1;
  spec.shards = 4;
  spec.buffers_per_slot = 3;
  spec.element_bytes = sizeof(double);
  spec.elements = (3 << 20) + 5;
  auto arena = shmem::Arena::create(spec);
  ASSERT_TRUE(arena.ok()) << arena.status().to_string();
  arena->assign_slot(0, 0);
  Leaves leaves(&*arena, 0, collective::Dtype::kFloat64);
  leaves.begin(1);
  std::vector<std::vector<double>> values(4, std::vector<double>(spec.elements));
  std::mt19937 random(1);
  for (auto& each : values) {
    for (double& value : each) value = static_cast<double>(random()) / 1e7 - 200;
  }
  for (std::uint32_t leaf = 0; leaf < 4; ++leaf) {
    static_cast<void>(leaves.acquire(leaf));
    const GradientPart all{3, spec.elements - 3, values[leaf].data() + 3, 0.3};
    leaves.fill(std::span(&all, 1));
    leaves.seal();
  }
  const auto partials = sealed_partials(*arena, 1, std::vector<proto::SlotId>(4));
  ASSERT_TRUE(partials);
  ASSERT_EQ(partials->size(), 1U);
  const auto* sum = reinterpret_cast<const double*>(partials->front().data.data());
  for (std::size_t i = 0; i < spec.elements; ++i) {
    const double want = i < 3 ? 0
                              : (values[0][i] * 0.3 + values[1][i] * 0.3) +
                                    (values[2][i] * 0.3 + values[3][i] * 0.3);
    ASSERT_EQ(sum[i], want) << i;
  }
}

TEST(Leaves, SealsOfAnEarlierStepAreWithdrawnBeforeTheNext) {
  shmem::Arena arena = make_arena(2, 2);
  Leaves leaves(&arena, 0, collective::Dtype::kFloat32);
  leaves.begin(1);
  compute(leaves, 0);
  compute(leaves, 1);
  EXPECT_TRUE(sealed_partials(arena, 1, std::vector<proto::SlotId>(2)));
  leaves.begin(2);
  EXPECT_FALSE(sealed_partials(arena, 1, std::vector<proto::SlotId>(2)));
  EXPECT_FALSE(sealed_partials(arena, 2, std::vector<proto::SlotId>(2)));
}

// Without it a host that is only partly this member's hides the missing leaf from both reader and
// author.
TEST(Leaves, GivesUpNodesThatANewWorldTookFromIt) {
  shmem::Arena arena = make_arena(4, 2);
  Leaves leaves(&arena, 0, collective::Dtype::kFloat32);
  leaves.begin(3);
  for (const std::uint32_t leaf : {0U, 1U, 2U}) compute(leaves, leaf);  // folds 0 and 1
  const std::vector<proto::SlotId> owners = {{0, 1}, {0, 0}, {0, 0}, {0, 1}};
  leaves.keep_owned(owners, {0, 0});
  EXPECT_FALSE(leaves.holds(0));
  EXPECT_FALSE(leaves.holds(1));
  EXPECT_TRUE(leaves.holds(2));
  compute(leaves, 1);
  Leaves other(&arena, 1, collective::Dtype::kFloat32);
  other.begin(3);
  compute(other, 0);
  compute(other, 3);
  const auto partials = sealed_partials(arena, 3, owners);
  ASSERT_TRUE(partials);
  expect_canonical(*partials);
}

// The reader's scan races an author that folds and uses a buffer again: without the second look at
// the seals a third of the sums was wrong here.
TEST(SealedPartials, AreOfOneInstantWhileTheAuthorFolds) {
  constexpr std::uint32_t kShards = 16;
  constexpr proto::Step kSteps = 4000;
  shmem::Arena arena = make_arena(kShards, proto::canonical_buffers(kShards));
  std::vector<proto::SlotId> owners(kShards);
  for (std::uint32_t leaf = 8; leaf < kShards; ++leaf) owners[leaf] = {0, 1};
  std::atomic<proto::Step> open{0}, read{0};
  std::thread author([&] {
    Leaves leaves(&arena, 0, collective::Dtype::kFloat32);
    for (proto::Step step = 1; step <= kSteps; ++step) {
      while (open.load() < step) std::this_thread::yield();
      leaves.begin(step);
      for (std::uint32_t leaf = 0; leaf < 8; ++leaf) {
        const std::span<std::byte> buffer = leaves.acquire(leaf);
        std::fill_n(reinterpret_cast<float*>(buffer.data()), kElements,
                    static_cast<float>(1U << leaf));
        leaves.seal();
      }
      while (read.load() < step) std::this_thread::yield();
    }
  });
  Leaves reader(&arena, 1, collective::Dtype::kFloat32);
  int wrong = 0;
  for (proto::Step step = 1; step <= kSteps; ++step) {
    reader.begin(step);
    for (std::uint32_t leaf = 8; leaf < kShards; ++leaf) {
      const std::span<std::byte> buffer = reader.acquire(leaf);
      std::fill(buffer.begin(), buffer.end(), std::byte{0});
      reader.seal();
    }
    open = step;
    std::optional<std::vector<collective::Partial>> partials;
    while (!partials) partials = sealed_partials(arena, step, owners);
    float sum = 0.0F;
    for (const collective::Partial& partial : *partials)
      sum += *reinterpret_cast<const float*>(partial.data.data());
    wrong += sum == 255.0F ? 0 : 1;
    read = step;
  }
  author.join();
  EXPECT_EQ(wrong, 0) << "of " << kSteps << " steps";
}

TEST(SealedPartials, TakesEachLeafFromItsOwner) {
  shmem::Arena arena = make_arena(4, 3);
  Leaves first(&arena, 0, collective::Dtype::kFloat32);
  Leaves second(&arena, 1, collective::Dtype::kFloat32);
  first.begin(9);
  second.begin(9);
  compute(first, 0);
  compute(first, 1);
  compute(second, 2);
  const std::vector<proto::SlotId> owners = {{0, 0}, {0, 0}, {0, 1}, {0, 1}};
  EXPECT_FALSE(sealed_partials(arena, 9, owners));
  compute(second, 3);
  const auto partials = sealed_partials(arena, 9, owners);
  ASSERT_TRUE(partials);
  expect_canonical(*partials);
}

}  // namespace
}  // namespace regroup::elastic
