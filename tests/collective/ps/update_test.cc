// Optimizers of tables: formulas against a plain computation in double, bits against
// regroup/optimizer.h's kernels, 16-bit storage, integers that wrap.
#include "collective/ps/update.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "collective/reduce/half.h"
#include "collective/reduce/optimizer_kernels.h"

namespace regroup::collective::ps::testing::update {
namespace {

constexpr std::size_t kDim = 37;

TableSpec table(OptimizerSpec optimizer, Dtype dtype = Dtype::kFloat32) {
  return {
      .name = "t", .kind = TableKind::kHash, .dim = kDim, .dtype = dtype, .optimizer = optimizer};
}
std::vector<float> gradient(int step) {
  std::vector<float> out(kDim);
  for (std::size_t i = 0; i < kDim; ++i)
    out[i] = static_cast<float>(std::sin(static_cast<double>(i) + 3 * step));
  return out;
}

struct Row {
  std::vector<float> values = std::vector<float>(kDim, 0.5F), first = std::vector<float>(kDim),
                     second = std::vector<float>(kDim);
  void step(const TableSpec& spec, int number, double lr) {
    const std::vector<float> by = gradient(number);
    Updater(spec).apply({reinterpret_cast<std::byte*>(values.data()),
                         {first.data(), second.data()},
                         reinterpret_cast<const std::byte*>(by.data()),
                         kDim},
                        static_cast<std::uint64_t>(number), {.lr = lr});
  }
};

// `formula(p, g, a, b, step)` changes a value and its two words of state.
template <class Formula>
void expect_formula(const TableSpec& spec, double lr, Formula formula) {
  Row row;
  std::vector<double> p(kDim, 0.5), a(kDim), b(kDim);
  for (int step = 1; step <= 5; ++step) {
    row.step(spec, step, lr);
    const std::vector<float> by = gradient(step);
    for (std::size_t i = 0; i < kDim; ++i) {
      formula(p[i], static_cast<double>(by[i]), a[i], b[i], step);
      ASSERT_NEAR(row.values[i], p[i], 2e-6 * std::max(1.0, std::abs(p[i])))
          << name_of(spec.optimizer.kind) << " step " << step << " element " << i;
    }
  }
}

TEST(PsUpdate, FollowsTheFormulas) {
  expect_formula(table({.kind = OptimizerKind::kSum}), 0,
                 [](double& p, double g, double&, double&, int) { p += g; });
  expect_formula(table({.kind = OptimizerKind::kAssign}), 0,
                 [](double& p, double g, double&, double&, int) { p = g; });
  expect_formula(table({.kind = OptimizerKind::kSgd, .weight_decay = 0.1}), 0.01,
                 [](double& p, double g, double&, double&, int) { p -= 0.01 * (g + 0.1 * p); });
  expect_formula(table({.kind = OptimizerKind::kMomentum, .momentum = 0.9}), 0.01,
                 [](double& p, double g, double& m, double&, int) {
                   m = 0.9 * m + g;
                   p -= 0.01 * m;
                 });
  expect_formula(table({.kind = OptimizerKind::kAdagrad}), 0.1,
                 [](double& p, double g, double& sum, double&, int) {
                   sum += g * g;
                   p -= 0.1 * g / (std::sqrt(sum) + 1e-8);
                 });
  for (const OptimizerKind kind : {OptimizerKind::kAdam, OptimizerKind::kLazyAdam}) {
    expect_formula(table({.kind = kind}), 0.1,
                   [](double& p, double g, double& m, double& v, int step) {
                     m = 0.9 * m + 0.1 * g;
                     v = 0.999 * v + 0.001 * g * g;
                     const double first = m / (1 - std::pow(0.9, step));
                     const double second = v / (1 - std::pow(0.999, step));
                     p -= 0.1 * first / (std::sqrt(second) + 1e-8);
                   });
  }
  expect_formula(table({.kind = OptimizerKind::kFtrl, .l1 = 0.3, .l2 = 0.2, .beta = 1}), 0.5,
                 [](double& w, double g, double& n, double& z, int) {
                   const double next = n + g * g;
                   z += g - (std::sqrt(next) - std::sqrt(n)) / 0.5 * w;
                   n = next;
                   w = std::abs(z) <= 0.3
                           ? 0
                           : -(z - std::copysign(0.3, z)) / ((1 + std::sqrt(n)) / 0.5 + 0.2);
                 });
}

TEST(PsUpdate, RowAdagradHasOneAccumulator) {
  Row row;
  double sum = 0;
  std::vector<double> p(kDim, 0.5);
  for (int step = 1; step <= 3; ++step) {
    row.step(table({.kind = OptimizerKind::kRowAdagrad}), step, 0.1);
    const std::vector<float> by = gradient(step);
    double squares = 0;
    for (const float g : by) squares += static_cast<double>(g) * g;
    sum += squares / kDim;
    for (std::size_t i = 0; i < kDim; ++i) {
      p[i] -= 0.1 * by[i] / (std::sqrt(sum) + 1e-8);
      ASSERT_NEAR(row.values[i], p[i], 1e-6);
    }
    EXPECT_NEAR(row.first[0], sum, 1e-5);
    EXPECT_EQ(row.first[1], 0);
  }
}

// The bits of the kernel that optimizers of a member use.
TEST(PsUpdate, AdamHasTheBitsOfTheKernel) {
  Row row, plain;
  row.step(table({.kind = OptimizerKind::kAdam}), 1, 0.1);
  const std::vector<float> by = gradient(1);
  reduce::all_optimizer_kernels().back().adam(
      plain.values.data(), by.data(), plain.first.data(), plain.second.data(), kDim,
      {static_cast<float>(1 - 0.9), 0.999F, static_cast<float>(1 - 0.999),
       static_cast<float>(std::sqrt(1 - 0.999)), 1e-8F, static_cast<float>(-0.1 / (1 - 0.9)), 0,
       1});
  EXPECT_EQ(std::memcmp(row.values.data(), plain.values.data(), kDim * sizeof(float)), 0);
  EXPECT_EQ(power(0.999, 1), 0.999);
  EXPECT_NEAR(power(0.999, 12'345), std::pow(0.999, 12'345), 1e-15);
}

TEST(PsUpdate, HalvesAreComputedInFloatAndRoundedOnce) {
  for (const Dtype dtype : {Dtype::kFloat16, Dtype::kBfloat16}) {
    Row wide;
    std::vector<std::uint16_t> stored(kDim), expected(kDim);
    auto* const bytes = reinterpret_cast<std::byte*>(stored.data());
    reduce::narrow(bytes, reinterpret_cast<const std::byte*>(wide.values.data()), kDim, dtype);
    const std::vector<float> by = gradient(1);
    Updater(table({.kind = OptimizerKind::kSgd}, dtype))
        .apply({bytes, {}, reinterpret_cast<const std::byte*>(by.data()), kDim}, 1, {.lr = 0.1});
    wide.step(table({.kind = OptimizerKind::kSgd}), 1, 0.1);
    reduce::narrow(reinterpret_cast<std::byte*>(expected.data()),
                   reinterpret_cast<const std::byte*>(wide.values.data()), kDim, dtype);
    EXPECT_EQ(stored, expected) << name_of(dtype);
  }
}

TEST(PsUpdate, IntegersWrap) {
  std::int64_t value = std::numeric_limits<std::int64_t>::max();
  const std::int64_t one = 1;
  Updater(table({}, Dtype::kInt64))
      .apply(
          {reinterpret_cast<std::byte*>(&value), {}, reinterpret_cast<const std::byte*>(&one), 1},
          1, {});
  EXPECT_EQ(value, std::numeric_limits<std::int64_t>::min());
}

}  // namespace
}  // namespace regroup::collective::ps::testing::update
