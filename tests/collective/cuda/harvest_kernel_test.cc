// The harvest kernel, compiled for this processor, fills a leaf as Kernels::scale does, except that
// every NaN is the one NaN: pieces of any length, at any element, with holes and without a source.
#include "collective/cuda/harvest_kernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "collective/cuda/host_kernels.h"
#include "collective/reduce/kernels.h"
#include "tests/collective/reference.h"

namespace regroup::collective::testing::harvest_kernel {
namespace {

constexpr std::size_t kGuard = 64;
constexpr std::byte kPoison{0xa5};

template <class T>
struct Type;
template <>
struct Type<float> {
  static constexpr Dtype kDtype = Dtype::kFloat32;
  static constexpr const char* kKernel = "regroup_harvest_float32";
  static constexpr int kScale = 0;
};
template <>
struct Type<double> {
  static constexpr Dtype kDtype = Dtype::kFloat64;
  static constexpr const char* kKernel = "regroup_harvest_float64";
  static constexpr int kScale = 1;
};

struct Case {
  std::size_t count;
  double weight;
  std::vector<Bytes> sources;  // each one element longer than its piece
  std::vector<cuda::HarvestPiece> pieces;
};

template <class T>
Case random_case(std::mt19937_64& random) {
  Case made{.count = 1 + random() % 900, .weight = 1.0 / static_cast<double>(1 + random() % 9)};
  for (std::size_t at = 0; at < made.count;) {
    if (random() % 4 == 0) at += random() % 9;  // a hole
    const std::size_t left = made.count - std::min(at, made.count);
    const std::size_t count = std::min<std::size_t>(left, random() % (random() % 3 == 0 ? 300 : 9));
    const std::size_t skew = random() % 2;
    made.sources.push_back(make_leaf(Type<T>::kDtype, count + 1, random(), true));
    const T nan = -std::numeric_limits<T>::quiet_NaN();  // keeps its sign in a product
    if (random() % 4 == 0) std::memcpy(made.sources.back().data(), &nan, sizeof(T));
    const bool absent = random() % 5 == 0;
    const std::byte* source = made.sources.back().data() + skew * sizeof(T);
    made.pieces.push_back({absent ? nullptr : source, at, count});
    at += count;
  }
  return made;
}

template <class T>
Bytes expected(const Case& given) {
  const auto scale = reduce::kernels_of(reduce::best_simd()).scale[Type<T>::kScale];
  std::vector<T> leaf(given.count);
  for (const cuda::HarvestPiece& piece : given.pieces) {
    if (piece.source != nullptr)
      scale(leaf.data() + piece.offset, piece.source, piece.count, given.weight, false);
  }
  for (T& value : leaf) {
    if (std::isnan(value)) value = std::numeric_limits<T>::quiet_NaN();
  }
  Bytes out(given.count * sizeof(T));
  std::memcpy(out.data(), leaf.data(), out.size());
  return out;
}

template <class T>
void expect_filled() {
  std::mt19937_64 random(1);
  for (int round = 0; round < 400; ++round) {
    const Case given = random_case<T>(random);
    Bytes leaf(given.count * sizeof(T) + kGuard, kPoison);
    const cuda::HarvestArguments arguments{given.pieces.data(), given.pieces.size(), leaf.data(),
                                           given.count, given.weight};
    const auto blocks = static_cast<std::uint32_t>(1 + random() % 9);
    const auto threads = static_cast<std::uint32_t>(1 + random() % 20);
    cuda::find_host_kernel(Type<T>::kKernel)->run(&arguments, blocks, threads);
    ASSERT_EQ(std::count(leaf.end() - kGuard, leaf.end(), kPoison), kGuard) << round;
    leaf.resize(leaf.size() - kGuard);
    ASSERT_EQ(leaf, expected<T>(given))
        << "round " << round << ", " << blocks << " blocks of " << threads << " threads";
  }
}

TEST(HarvestKernel, FillsALeafAsScaleDoes) {
  expect_filled<float>();
  expect_filled<double>();
}

TEST(HarvestKernel, FillsALeafWithoutPieces) {
  std::vector<float> leaf(77, 1.0F);
  const cuda::HarvestArguments arguments{nullptr, 0, leaf.data(), leaf.size(), 0.5};
  cuda::find_host_kernel("regroup_harvest_float32")->run(&arguments, 3, 4);
  EXPECT_EQ(leaf, std::vector<float>(77));
}

}  // namespace
}  // namespace regroup::collective::testing::harvest_kernel
