// Initial rows: Philox against its published vectors and a second implementation, the quantile
// against the distribution, rows that depend on nothing but their place, golden values.
#include "collective/ps/init.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "collective/reduce/half.h"

namespace regroup::collective::ps {
namespace {

// kat_vectors of Random123 1.14: philox4x32, 10 rounds.
TEST(PsInit, PhiloxGivesThePublishedVectors) {
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// Written from the paper: products by halves of 16 bits, the key bumped before each round but the
// first.
struct Reference {
  static void multiply(std::uint32_t a, std::uint32_t b, std::uint32_t& high, std::uint32_t& low) {
    const std::uint32_t a0 = a & 0xffff, a1 = a >> 16, b0 = b & 0xffff, b1 = b >> 16;
    const std::uint32_t low_part = a0 * b0;
    const std::uint32_t cross = a1 * b0 + (low_part >> 16);
    const std::uint32_t cross2 = a0 * b1 + (cross & 0xffff);
    high = a1 * b1 + (cross >> 16) + (cross2 >> 16);
    low = a * b;
  }
  static PhiloxCounter run(PhiloxCounter c, PhiloxKey k) {
    for (int round = 0; round < 10; ++round) {
      if (round > 0) {
        k[0] += 0x9e3779b9;
        k[1] += 0xbb67ae85;
      }
      std::uint32_t high0 = 0, low0 = 0, high1 = 0, low1 = 0;
      multiply(0xd2511f53, c[0], high0, low0);
      multiply(0xcd9e8d57, c[2], high1, low1);
      c = {high1 ^ c[1] ^ k[0], low1, high0 ^ c[3] ^ k[1], low0};
    }
    return c;
  }
};

TEST(PsInit, PhiloxEqualsASecondImplementation) {
  std::uint64_t state = 1;
  const auto next = [&state] { return static_cast<std::uint32_t>(mix64(++state) >> 16); };
  for (int i = 0; i < 1000; ++i) {
    const PhiloxCounter counter{next(), next(), next(), next()};
    const PhiloxKey key{next(), next()};
    ASSERT_EQ(philox4x32(counter, key), Reference::run(counter, key)) << i;
  }
}

TEST(PsInit, TheQuantileIsThatOfTheNormalDistribution) {
  EXPECT_EQ(normal_quantile(0.5), 0);
  for (const double p : {1.2e-10, 1e-9, 1e-6, 1e-3, 0.02425, 0.0749, 0.0751, 0.3, 0.49, 0.7, 0.93,
                         0.99, 0.99999, 1 - 1e-9}) {
    const double x = normal_quantile(p);
    const double back = std::erfc(-x / std::sqrt(2.0)) / 2;  // the distribution function
    const double density = std::exp(-x * x / 2) / std::sqrt(2 * M_PI);
    EXPECT_LT(std::abs(back - p) / density, 2e-6 * std::max(1.0, std::abs(x))) << p;
  }
}

TableSpec table(InitialKind kind, double first, double second, Dtype dtype = Dtype::kFloat32) {
  return {.name = "users",
          .kind = TableKind::kHash,
          .dim = 8,
          .dtype = dtype,
          .init = {kind, first, second}};
}

template <class T>
std::vector<T> row(const InitialRows& rows, std::uint64_t position, std::size_t first,
                   std::size_t count) {
  std::vector<T> out(count);
  rows.fill(position, first, std::as_writable_bytes(std::span(out)));
  return out;
}

TEST(PsInit, APartOfARowHasTheValuesOfTheWholeRow) {
  const InitialRows rows(7, table(InitialKind::kNormal, 0, 1));
  const auto whole = row<float>(rows, 42, 0, 23);
  for (std::size_t first = 0; first < 23; ++first) {
    for (std::size_t count = 0; first + count <= 23; ++count) {
      const auto part = row<float>(rows, 42, first, count);
      ASSERT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + static_cast<long>(first)));
    }
  }
}

TEST(PsInit, SeedNameAndPositionEachChangeTheRow) {
  TableSpec spec = table(InitialKind::kUniform, -1, 1);
  const auto one = row<float>(InitialRows(7, spec), 1, 0, 8);
  EXPECT_EQ(one, row<float>(InitialRows(7, spec), 1, 0, 8));
  EXPECT_NE(one, row<float>(InitialRows(8, spec), 1, 0, 8));
  EXPECT_NE(one, row<float>(InitialRows(7, spec), 1ULL << 32 | 1, 0, 8));
  spec.name = "items";
  EXPECT_NE(one, row<float>(InitialRows(7, spec), 1, 0, 8));
}

// Bits that no later version and no other processor may change.
TEST(PsInit, GoldenValues) {
  const auto bits = [](float value) {
    std::uint32_t out = 0;
    std::memcpy(&out, &value, sizeof out);
    return out;
  };
  const PhiloxKey key = philox_key(7, "users");
  const auto uniform = row<float>(InitialRows(7, table(InitialKind::kUniform, -1, 1)), 42, 0, 8);
  for (std::uint32_t i = 0; i < 8; ++i) {
    const std::uint32_t random = Reference::run({42, 0, i / 4, 0}, key)[i % 4];
    EXPECT_EQ(bits(uniform[i]), bits(static_cast<float>(-1 + 2 * ((random + 0.5) * 0x1p-32)))) << i;
  }
  EXPECT_EQ(key, (PhiloxKey{2339446257, 3923373830}));
  const auto normal = row<float>(InitialRows(7, table(InitialKind::kNormal, 0, 1)), 42, 0, 4);
  constexpr std::uint32_t kNormal[] = {1049316542, 3208417497, 3217267358, 1062910947};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(bits(normal[i]), kNormal[i]) << i;
}

TEST(PsInit, ValuesHaveTheMomentsOfTheirDistribution) {
  constexpr std::size_t kRows = 4000, kDim = 8;
  for (const bool normal : {false, true}) {
    const InitialRows rows(
        1, normal ? table(InitialKind::kNormal, 3, 2) : table(InitialKind::kUniform, 2, 6));
    double sum = 0, squares = 0;
    for (std::size_t r = 0; r < kRows; ++r) {
      for (const float value : row<float>(rows, r, 0, kDim)) {
        sum += value;
        squares += static_cast<double>(value) * value;
        ASSERT_TRUE(normal || (value >= 2 && value <= 6)) << value;
      }
    }
    const double mean = sum / (kRows * kDim), variance = squares / (kRows * kDim) - mean * mean;
    EXPECT_NEAR(mean, normal ? 3 : 4, 0.05);
    EXPECT_NEAR(variance, normal ? 4 : 16.0 / 12, 0.1);
  }
}

TEST(PsInit, EveryTypeRoundsTheSameNumber) {
  const auto wide =
      row<double>(InitialRows(7, table(InitialKind::kUniform, -8, 8, Dtype::kFloat64)), 5, 0, 8);
  const auto single = row<float>(InitialRows(7, table(InitialKind::kUniform, -8, 8)), 5, 0, 8);
  const auto half = row<std::uint16_t>(
      InitialRows(7, table(InitialKind::kUniform, -8, 8, Dtype::kBfloat16)), 5, 0, 8);
  const auto whole = row<std::int64_t>(
      InitialRows(7, table(InitialKind::kUniform, -8, 8, Dtype::kInt64)), 5, 0, 8);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(single[i], static_cast<float>(wide[i]));
    EXPECT_EQ(whole[i], static_cast<std::int64_t>(wide[i]));
    float back = 0;
    reduce::widen(reinterpret_cast<std::byte*>(&back), reinterpret_cast<const std::byte*>(&half[i]),
                  1, Dtype::kBfloat16);
    EXPECT_NEAR(back, single[i], std::abs(single[i]) / 128);
  }
  EXPECT_EQ(row<float>(InitialRows(7, table(InitialKind::kConstant, 1.5, 0)), 5, 0, 2),
            (std::vector<float>{1.5, 1.5}));
  EXPECT_EQ(row<float>(InitialRows(7, table(InitialKind::kZeros, 0, 0)), 5, 0, 2),
            (std::vector<float>{0, 0}));
}

}  // namespace
}  // namespace regroup::collective::ps
