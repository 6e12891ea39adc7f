// Every instruction set of this processor gives the bits of the definition, for every type and
// operation, NaN, infinities, denormals and -0 included, at any length and alignment.
#include "collective/reduce/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/cpu.h"
#include "collective/reduce/tree_fold.h"
#include "tests/collective/reference.h"

namespace regroup::collective::testing::kernels {
namespace {

std::vector<reduce::Simd> levels() {
  std::vector<reduce::Simd> all;
  for (reduce::Simd level : {reduce::Simd::kBaseline, reduce::Simd::kAvx2, reduce::Simd::kAvx512}) {
    if (level <= reduce::best_simd()) all.push_back(level);
  }
  return all;
}

class Kernel : public ::testing::TestWithParam<reduce::Simd> {};

Bytes folded(std::span<const Bytes> leaves, Dtype dtype, Op op, reduce::Simd simd, std::size_t skew,
             reduce::Stores stores) {
  std::vector<proto::Interval> nodes;
  std::vector<Bytes> moved;
  std::vector<const std::byte*> inputs;
  for (std::uint32_t i = 0; i < leaves.size(); ++i) {
    nodes.push_back({i, i + 1});
    moved.emplace_back(skew);
    moved.back().insert(moved.back().end(), leaves[i].begin(), leaves[i].end());
  }
  for (const Bytes& leaf : moved) inputs.push_back(leaf.data() + skew);
  auto fold = reduce::TreeFold::compile(nodes, static_cast<std::uint32_t>(leaves.size()), simd);
  EXPECT_TRUE(fold.ok());
  Bytes out(leaves[0].size() + 128);
  const std::size_t at = 64 - reinterpret_cast<std::uintptr_t>(out.data()) % 64 + skew;
  const std::span<std::byte> to = std::span(out).subspan(at, leaves[0].size());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(to.data()) % 64,
            skew);  // 0: kStream goes past the cache
  fold->run(inputs, {0, to.size()}, to.data(), dtype, op, stores);
  return {to.begin(), to.end()};
}

TEST_P(Kernel, AgreesBitwiseWithTheDefinition) {
  for (Dtype dtype : kDtypes) {
    for (Op op : kOperators) {
      if (!is_defined(dtype, op)) continue;
      for (std::uint32_t count : {1, 2, 3, 8, 9}) {
        std::vector<Bytes> leaves;
        for (std::uint32_t i = 0; i < count; ++i)
          leaves.push_back(make_leaf(dtype, 2111, 77 * count + i, true));
        const Bytes want = reference_fold(dtype, op, leaves, {0, count});
        for (const std::size_t skew : {0, 1, 2}) {
          for (const reduce::Stores stores : {reduce::Stores::kPlain, reduce::Stores::kStream}) {
            ASSERT_EQ(folded(leaves, dtype, op, GetParam(), skew, stores), want)
                << name_of(op) << " of " << count << " " << name_of(dtype) << ", skew " << skew;
          }
        }
      }
    }
  }
}

TEST_P(Kernel, DoesNotDependOnTheModeOfTheThread) {
  const std::vector<Bytes> leaves{make_leaf(Dtype::kFloat32, 999, 1, true),
                                  make_leaf(Dtype::kFloat32, 999, 2, true)};
  const Bytes want = reference_fold(Dtype::kFloat32, Op::kSum, leaves, {0, 2});
  const base::FloatMode before = base::float_mode();
  base::set_float_mode(base::kFastFloatMode);
  const base::FloatMode changed = base::float_mode();
  ASSERT_NE(changed & ~base::kFloatFlags, base::kStandardFloatMode);
  const Bytes got =
      folded(leaves, Dtype::kFloat32, Op::kSum, GetParam(), 0, reduce::Stores::kPlain);
  EXPECT_EQ(base::float_mode(), changed);
  base::set_float_mode(before);
  EXPECT_EQ(got, want);
}

// All 65,536 halves, and floats around every one of them.
TEST_P(Kernel, ConvertsEveryFloat16) {
  const reduce::Kernels& kernels = reduce::kernels_of(GetParam());
  std::vector<std::uint16_t> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  std::vector<float> floats(halves.size());
  kernels.widen[0](floats.data(), halves.data(), halves.size());
  std::vector<float> around;
  for (std::size_t i = 0; i < halves.size(); ++i) {
    const float want = value_of_half(halves[i]);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(floats[i]));
      continue;
    }
    ASSERT_EQ(std::bit_cast<std::uint32_t>(floats[i]), std::bit_cast<std::uint32_t>(want)) << i;
    // A tie, if normal.
    const float middle = std::bit_cast<float>(std::bit_cast<std::uint32_t>(want) + 0x1000);
    for (float f : {want, middle, std::nextafterf(middle, 0), std::nextafterf(middle, INFINITY),
                    std::nextafterf(want, 0), want * 0.5F, want * 1.5F}) {
      around.push_back(f);
    }
  }
  std::vector<std::uint16_t> half(around.size());
  std::vector<std::uint16_t> bfloat(around.size());
  kernels.narrow[0](half.data(), around.data(), around.size());
  kernels.narrow[1](bfloat.data(), around.data(), around.size());
  for (std::size_t i = 0; i < around.size(); ++i) {
    ASSERT_EQ(half[i], half_of(around[i])) << around[i];
    ASSERT_EQ(bfloat[i], bfloat_of(around[i])) << around[i];
  }
}

template <class T>
void expect_scaled(reduce::Kernels::Scale scale) {
  constexpr double kFactor = 1.0 / 3;
  constexpr std::size_t kCount = 400;
  alignas(64) T values[kCount + 1];
  for (std::size_t i = 0; i <= kCount; ++i) values[i] = static_cast<T>(i) * T{0.7} - T{90};
  for (const bool past : {false, true}) {
    for (const std::size_t skew : {0, 1}) {
      for (const std::size_t count : {0, 1, 63, 64, 65, 399}) {
        alignas(64) T to[kCount + 1];
        std::fill(std::begin(to), std::end(to), T{-1});
        scale(to + skew, values + 1 - skew, count, kFactor, past);
        if (past) reduce::complete_stores();
        for (std::size_t i = 0; i < count; ++i)
          ASSERT_EQ(to[skew + i], values[1 - skew + i] * static_cast<T>(kFactor));
        ASSERT_EQ(to[skew + count], T{-1});
      }
    }
  }
}

TEST_P(Kernel, ScalesAnyLengthByTheRoundedFactorAndNothingBeyond) {
  const reduce::Kernels& kernels = reduce::kernels_of(GetParam());
  expect_scaled<float>(kernels.scale[0]);
  expect_scaled<double>(kernels.scale[1]);
}

TEST_P(Kernel, CopiesAnyLengthAtAnyAlignmentAndNothingBeyond) {
  const reduce::Kernels& kernels = reduce::kernels_of(GetParam());
  const Bytes from = make_leaf(Dtype::kUint8, 2000, 5, true);
  for (const std::size_t skew : {0, 1, 17, 63}) {
    for (std::size_t bytes = 0; bytes + skew <= 1300; bytes += bytes < 600 ? 1 : 97) {
      Bytes to(2000, std::byte{0xa5});
      Bytes want = to;
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(skew), bytes,
                  want.begin() + 64 - skew);
      kernels.copy(to.data() + 64 - skew, from.data() + skew, bytes);
      ASSERT_EQ(to, want) << bytes << " bytes, skew " << skew;
    }
  }
}

std::string name_of_level(const ::testing::TestParamInfo<reduce::Simd>& info) {
  constexpr const char* kNames[] = {"Baseline", "Avx2", "Avx512"};
  return kNames[static_cast<std::size_t>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Simd, Kernel, ::testing::ValuesIn(levels()), name_of_level);

}  // namespace
}  // namespace regroup::collective::testing::kernels
