// The sampler is a bijection per epoch, whatever the shards, and only an epoch's last batch is
// short.
#include "elastic/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>
#include <vector>

namespace regroup::elastic {
namespace {

TEST(Permuted, IsABijectionForEverySize) {
  for (std::uint64_t n = 1; n <= 600; ++n) {
    std::set<std::uint64_t> seen;
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t value = permuted(i, n, 42 + n);
      ASSERT_LT(value, n);
      seen.insert(value);
    }
    ASSERT_EQ(seen.size(), n);
  }
}

TEST(Permuted, DependsOnTheKeyAndLeavesFewPointsInPlace) {
  constexpr std::uint64_t kSize = 10'000;
  int fixed = 0;
  int same = 0;
  for (std::uint64_t i = 0; i < kSize; ++i) {
    fixed += permuted(i, kSize, 1) == i ? 1 : 0;
    same += permuted(i, kSize, 1) == permuted(i, kSize, 2) ? 1 : 0;
  }
  EXPECT_LT(fixed, 12);  // of a random permutation: 1 on average
  EXPECT_LT(same, 12);
}

// Neighbours must not stay neighbours: the mean distance of a shuffled pair is n/3.
TEST(Permuted, SpreadsNeighbours) {
  constexpr std::uint64_t kSize = 10'000;
  double distance = 0.0;
  for (std::uint64_t i = 0; i + 1 < kSize; ++i) {
    distance += std::abs(static_cast<double>(permuted(i, kSize, 3)) -
                         static_cast<double>(permuted(i + 1, kSize, 3)));
  }
  EXPECT_NEAR(distance / static_cast<double>(kSize - 1), kSize / 3.0, kSize / 20.0);
}

TEST(Sampler, UsesEverySampleOncePerEpochWhateverTheShards) {
  for (const std::uint32_t shards : {1U, 4U, 6U, 16U, 100U}) {
    const Sampler sampler(7, {1797, 64, shards});
    ASSERT_EQ(sampler.batches_per_epoch(), 29U);
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
      std::set<std::uint64_t> seen;
      std::size_t count = 0;
      for (proto::Step step = epoch * 29 + 1; step <= (epoch + 1) * 29; ++step) {
        ASSERT_EQ(sampler.batch_of(step).epoch, epoch);
        for (std::uint32_t leaf = 0; leaf < shards; ++leaf) {
          for (const std::uint64_t sample : sampler.samples_of(step, leaf))
            seen.insert(sample), ++count;
        }
      }
      EXPECT_EQ(count, 1797U);
      EXPECT_EQ(seen.size(), 1797U);
    }
  }
}

TEST(Sampler, OnlyTheLastBatchIsShort) {
  const Sampler sampler(7, {1797, 64, 4});
  for (proto::Step step = 1; step <= 58; ++step) {
    const Batch batch = sampler.batch_of(step);
    EXPECT_EQ(batch.end - batch.begin, step % 29 == 0 ? 5U : 64U) << step;
  }
}

TEST(Sampler, ShufflesEpochsDifferently) {
  const Sampler sampler(7, {1797, 64, 1});
  EXPECT_NE(sampler.samples_of(1, 0), sampler.samples_of(30, 0));
  EXPECT_EQ(sampler.samples_of(1, 0), Sampler(7, {1797, 64, 1}).samples_of(1, 0));
  EXPECT_NE(sampler.samples_of(1, 0), Sampler(8, {1797, 64, 1}).samples_of(1, 0));
}

TEST(Sampler, WithoutShufflingAnEpochHasTheOrderOfTheDataSet) {
  const Sampler sampler(7, {.samples = 10, .batch = 4, .shards = 2, .shuffle = false});
  const auto samples = [&](proto::Step step) {
    std::vector<std::uint64_t> all = sampler.samples_of(step, 0);
    for (const std::uint64_t sample : sampler.samples_of(step, 1)) all.push_back(sample);
    return all;
  };
  for (const proto::Step first : {1U, 4U}) {  // of an epoch
    EXPECT_EQ(samples(first), (std::vector<std::uint64_t>{0, 1, 2, 3}));
    EXPECT_EQ(samples(first + 2), (std::vector<std::uint64_t>{8, 9}));
  }
}

TEST(Sampler, AShortLastBatchMayBeLeftOut) {
  const Sampler sampler(7, {.samples = 11, .batch = 4, .drop_last = true});
  EXPECT_EQ(sampler.batches_per_epoch(), 2U);
  std::set<std::uint64_t> seen;
  for (proto::Step step = 1; step <= 40; ++step) {
    EXPECT_EQ(sampler.batch_of(step).epoch, (step - 1) / 2);
    EXPECT_EQ(sampler.samples_of(step, 0).size(), 4U);
    for (const std::uint64_t sample : sampler.samples_of(step, 0)) seen.insert(sample);
  }
  EXPECT_EQ(seen.size(), 11U);  // each epoch leaves out other ones
}

TEST(Sampler, SubstepsTakeTheSameBatch) {
  const Sampler sampler(7, {1797, 64, 4, 3}), plain(7, {1797, 64, 4});
  for (proto::Step step = 1; step <= 3 * 58; ++step) {
    const proto::Step batch = (step + 2) / 3;
    ASSERT_EQ(sampler.batch_number(step), batch);
    ASSERT_EQ(sampler.samples_of(step, 2), plain.samples_of(batch, 2));
    ASSERT_EQ(sampler.batch_of(step).epoch, plain.batch_of(batch).epoch);
  }
}

TEST(Sampler, ABatchDoesNotDependOnV) {
  std::vector<std::uint64_t> whole = Sampler(7, {1797, 64, 1}).samples_of(3, 0);
  std::vector<std::uint64_t> parts;
  for (std::uint32_t leaf = 0; leaf < 6; ++leaf) {
    for (const std::uint64_t sample : Sampler(7, {1797, 64, 6}).samples_of(3, leaf))
      parts.push_back(sample);
  }
  EXPECT_EQ(whole, parts);
}

}  // namespace
}  // namespace regroup::elastic
