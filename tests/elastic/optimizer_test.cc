// Optimizers: the same bits for every instruction set and with a save or without; a save
// that is whole when the step returns. Against torch.optim: tests/python/test_optim.py.
#include "regroup/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <vector>

#include "collective/reduce/optimizer_kernels.h"
#include "collective/reduce/publish.h"

namespace regroup::elastic {
namespace {

using collective::reduce::AdamScalars, collective::reduce::all_optimizer_kernels,
    collective::reduce::OptimizerKernels, collective::reduce::SgdScalars;
using Floats = std::vector<float>;

Floats random_floats(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Floats out(count);
  for (float& value : out) value = normal(random);
  return out;
}

bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

struct Buffers {
  Floats parameter, first, second;
  explicit Buffers(std::size_t count)
      : parameter(random_floats(count, 1)),
        first(random_floats(count, 2)),
        second(random_floats(count, 3)) {
    for (float& value : second) value *= value;
  }
  friend bool operator==(const Buffers& a, const Buffers& b) {
    return same_bits(a.parameter, b.parameter) && same_bits(a.first, b.first) &&
           same_bits(a.second, b.second);
  }
};

constexpr AdamScalars kAdam{0.1F, 0.999F, 0.001F, 0.5F, 1e-8F, -1e-3F, 0.01F, 0.9F};

TEST(OptimizerKernels, AllInstructionSetsGiveTheSameBits) {
  for (const OptimizerKernels& kernels : all_optimizer_kernels()) {
    if (!kernels.usable()) continue;
    for (const std::size_t count : {0UL, 1UL, 15UL, 16UL, 33UL, 1000UL}) {
      const Floats gradient = random_floats(count, 4);
      for (const bool nesterov : {false, true}) {
        const SgdScalars by{-0.1F, 0.9F, 0.8F, nesterov ? 0.01F : 0, nesterov, false};
        for (const bool with_momentum : {false, true}) {
          Buffers one(count), other(count);
          kernels.sgd(one.parameter.data(), gradient.data(),
                      with_momentum ? one.first.data() : nullptr, count, by);
          all_optimizer_kernels().back().sgd(other.parameter.data(), gradient.data(),
                                             with_momentum ? other.first.data() : nullptr, count,
                                             by);
          EXPECT_EQ(one, other) << kernels.name << " sgd " << count;
        }
      }
      Buffers one(count), other(count);
      kernels.adam(one.parameter.data(), gradient.data(), one.first.data(), one.second.data(),
                   count, kAdam);
      all_optimizer_kernels().back().adam(other.parameter.data(), gradient.data(),
                                          other.first.data(), other.second.data(), count, kAdam);
      EXPECT_EQ(one, other) << kernels.name << " adam " << count;

      const OptimizerKernels& plain = all_optimizer_kernels().back();
      const collective::reduce::AdagradScalars adagrad{-0.1F, 1e-8F};
      const collective::reduce::FtrlScalars ftrl{0.1F, 1, 0.5F, 0.25F};
      const auto run = [&](const OptimizerKernels& table, Buffers& into) {
        table.adagrad(into.parameter.data(), gradient.data(), into.second.data(), count, adagrad);
        if (count > 0) {
          table.row_adagrad(into.parameter.data(), gradient.data(), into.second.data(), count,
                            adagrad);
        }
        table.ftrl(into.parameter.data(), gradient.data(), into.second.data(), into.first.data(),
                   count, ftrl);
      };
      run(kernels, one);
      run(plain, other);
      EXPECT_EQ(one, other) << kernels.name << " adagrad, ftrl " << count;
    }
  }
}

TEST(OptimizerKernels, StreamsCopyWhateverIsAlignedOrNot) {
  constexpr std::size_t kMost = 200;
  const Floats from = random_floats(kMost + 16, 1);
  for (const OptimizerKernels& kernels : all_optimizer_kernels()) {
    if (!kernels.usable()) continue;
    for (std::size_t begin = 0; begin < 17; ++begin) {
      for (const std::size_t count : {0UL, 1UL, 15UL, 16UL, 17UL, 64UL, 129UL}) {
        alignas(64) std::array<float, kMost> to;
        to.fill(-1);
        kernels.stream(to.data() + begin, from.data() + begin % 5, count);
        collective::reduce::complete_stores();
        for (std::size_t i = 0; i < kMost; ++i) {
          const bool within = i >= begin && i < begin + count;
          ASSERT_EQ(to[i], within ? from[begin % 5 + i - begin] : -1)
              << kernels.name << " " << begin << " " << count;
        }
      }
    }
  }
}

// Fused and not, then the live tensors are overwritten: the copies hold what the step computed.
TEST(Optimizer, ASnapshotIsWholeWhenTheStepReturns) {
  for (const std::size_t count : {1UL, 1023UL, 1024UL, 5000UL}) {
    const Floats gradient = random_floats(count, 4);
    Buffers live(count), unfused(count), copy(count);
    const AdamOptions adam{.lr = 0.1, .weight_decay = 0.1, .decoupled = true};
    ASSERT_TRUE(adam_step({unfused.parameter, {}}, gradient, {unfused.first, {}},
                          {unfused.second, {}}, 3, adam)
                    .ok());
    ASSERT_TRUE(adam_step({live.parameter, copy.parameter}, gradient, {live.first, copy.first},
                          {live.second, copy.second}, 3, adam)
                    .ok());
    EXPECT_EQ(live, unfused);
    for (Floats* poisoned : {&live.parameter, &live.first, &live.second})
      std::ranges::fill(*poisoned, -1e30F);
    EXPECT_EQ(copy, unfused) << count;

    const SgdOptions sgd{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true};
    Buffers moving(count), still(count);
    ASSERT_TRUE(sgd_step({still.parameter, {}}, gradient, {still.first, {}}, false, sgd).ok());
    ASSERT_TRUE(sgd_step({moving.parameter, copy.parameter}, gradient, {moving.first, copy.first},
                         false, sgd)
                    .ok());
    EXPECT_EQ(moving, still);
    std::ranges::fill(moving.parameter, -1e30F);
    std::ranges::fill(moving.first, -1e30F);
    EXPECT_TRUE(same_bits(copy.parameter, still.parameter) && same_bits(copy.first, still.first))
        << count;
  }
}

// A member brings its share of a tensor, which begins and ends anywhere.
TEST(Optimizer, ACopyOfAPartHasThatPartAndNothingElseIsTouched) {
  constexpr std::size_t kCount = 5000;
  const Floats gradient = random_floats(kCount, 4);
  Buffers live(kCount);
  for (const auto& [begin, count] :
       {std::pair{0UL, 16UL}, {16UL, 1500UL}, {1024UL, 1024UL}, {4999UL, 1UL}}) {
    Floats memory(count + 2, -1);
    const std::span<float> copy = std::span(memory).subspan(1, count);
    ASSERT_TRUE(sgd_step({live.parameter, copy, begin}, gradient, {live.first, {}}, false,
                         {.lr = 0.1, .momentum = 0.9})
                    .ok());
    EXPECT_EQ(memory.front(), -1);
    EXPECT_EQ(memory.back(), -1);
    EXPECT_TRUE(std::ranges::equal(copy, std::span(live.parameter).subspan(begin, count))) << begin;
  }
}

TEST(Optimizer, RefusesInvalidArguments) {
  Floats four(4), five(5);
  EXPECT_EQ(sgd_step({five, four, 2}, five, {}, true, {}).code(), base::Code::kInvalidArgument);
  EXPECT_EQ(sgd_step({four, {}}, five, {}, true, {}).code(), base::Code::kInvalidArgument);
  EXPECT_EQ(sgd_step({four, five}, four, {}, true, {}).code(), base::Code::kInvalidArgument);
  EXPECT_EQ(sgd_step({four, {}}, four, {}, true, {.momentum = 0.9}).code(),
            base::Code::kInvalidArgument);
  EXPECT_EQ(sgd_step({four, {}}, four, {}, true, {.nesterov = true}).code(),
            base::Code::kInvalidArgument);
  EXPECT_EQ(adam_step({four, {}}, four, {four, {}}, {five, {}}, 1, {}).code(),
            base::Code::kInvalidArgument);
  EXPECT_EQ(adam_step({four, {}}, four, {four, {}}, {four, {}}, 0, {}).code(),
            base::Code::kInvalidArgument);
}

}  // namespace
}  // namespace regroup::elastic
