// CRC32C: the vectors of RFC 3720 appendix B.4, and all implementations against the portable one.
#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace regroup::base {
namespace {

std::vector<std::byte> bytes_from(int count, int start, int stride) {
  std::vector<std::byte> out;
  for (int i = 0; i < count; ++i) out.push_back(static_cast<std::byte>(start + i * stride));
  return out;
}

class Crc32cTest : public testing::TestWithParam<Crc32cKernel> {
 protected:
  void SetUp() override {
    if (!GetParam().usable()) GTEST_SKIP() << "this processor has no " << GetParam().name;
  }
  std::uint32_t crc(std::span<const std::byte> bytes, std::uint32_t from = 0) {
    return GetParam().crc(bytes, from);
  }
};

std::vector<std::byte> random_bytes(std::size_t count) {
  std::mt19937_64 random(1);
  std::vector<std::byte> out(count);
  for (std::byte& b : out) b = static_cast<std::byte>(random());
  return out;
}

TEST_P(Crc32cTest, HasTheValuesOfTheRfc) {
  EXPECT_EQ(crc(bytes_from(32, 0, 0)), 0x8a9136aaU);
  EXPECT_EQ(crc(bytes_from(32, 0xff, 0)), 0x62a8ab43U);
  EXPECT_EQ(crc(bytes_from(32, 0, 1)), 0x46dd794eU);
  EXPECT_EQ(crc(bytes_from(32, 31, -1)), 0x113fdb5cU);
  const std::string_view check = "123456789";
  EXPECT_EQ(crc(std::as_bytes(std::span(check))), 0xe3069283U);
  EXPECT_EQ(crc({}), 0U);
}

TEST_P(Crc32cTest, ContinuesWhereItStopped) {
  const auto bytes = bytes_from(100, 3, 7);
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    const std::uint32_t head = crc(std::span(bytes).first(cut));
    EXPECT_EQ(crc(std::span(bytes).subspan(cut), head), crc(bytes)) << cut;
  }
}

// At each offset in a cache line.
TEST_P(Crc32cTest, EqualsPortableAtAllLengthsAndAlignments) {
  const auto bytes = random_bytes(4096 + 64);
  for (std::size_t begin = 0; begin < 64; ++begin) {
    const auto from = static_cast<std::uint32_t>(begin * 0x9e3779b9U);
    std::uint32_t expected = from;
    for (std::size_t size = 0; size <= 4096; ++size) {
      ASSERT_EQ(crc(std::span(bytes).subspan(begin, size), from), expected)
          << size << " bytes at " << begin;
      expected = crc32c_portable(std::span(bytes).subspan(begin + size, 1), expected);
    }
  }
}

TEST_P(Crc32cTest, EqualsPortableOfLongSpans) {
  const auto bytes = random_bytes(1 << 20);
  std::mt19937_64 random(2);
  for (int i = 0; i < 50; ++i) {
    const std::size_t begin = random() % (1 << 19), size = random() % (1 << 19);
    const auto part = std::span(bytes).subspan(begin, size);
    const auto from = static_cast<std::uint32_t>(random());
    ASSERT_EQ(crc(part, from), crc32c_portable(part, from)) << size << " bytes at " << begin;
  }
}

TEST_P(Crc32cTest, FindsEveryFlippedBit) {
  auto bytes = random_bytes(1100);
  const std::uint32_t good = crc(bytes);
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    const auto flip = static_cast<std::byte>(1 << bit % 8);
    bytes[bit / 8] ^= flip;
    ASSERT_NE(crc(bytes), good) << bit;
    bytes[bit / 8] ^= flip;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Crc32cTest, testing::ValuesIn(all_crc32c_kernels()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Crc32c, ChoosesAUsableImplementation) {
  const auto bytes = random_bytes(1000);
  EXPECT_EQ(crc32c(bytes), crc32c_portable(bytes));
  EXPECT_TRUE(all_crc32c_kernels().back().usable());
}

}  // namespace
}  // namespace regroup::base
