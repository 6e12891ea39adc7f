// CRC32C: the vectors of RFC 3720 appendix B.4, and the two implementations against each other.
#include "core/crc32c.h"

#include <gtest/gtest.h>

#include <random>
#include <string_view>
#include <vector>

namespace regroup::core {
namespace {

std::vector<std::byte> bytes_from(int count, int start, int stride) {
  std::vector<std::byte> out;
  for (int i = 0; i < count; ++i) out.push_back(static_cast<std::byte>(start + i * stride));
  return out;
}

using Crc = std::uint32_t (*)(std::span<const std::byte>, std::uint32_t);

class Crc32cTest : public testing::TestWithParam<Crc> {
 protected:
  std::uint32_t crc(std::span<const std::byte> bytes, std::uint32_t from = 0) {
    return GetParam()(bytes, from);
  }
};

TEST_P(Crc32cTest, VectorsOfTheRfc) {
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

INSTANTIATE_TEST_SUITE_P(Both, Crc32cTest, testing::Values(&crc32c, &crc32c_portable),
                         [](const auto& info) { return info.index == 0 ? "Chosen" : "Portable"; });

TEST(Crc32c, HardwareEqualsPortable) {
  std::mt19937_64 random(1);
  std::vector<std::byte> bytes(16384 + 16);  // several rounds of the streams, and what is left of them
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  for (int i = 0; i < 500; ++i) {
    const auto part = std::span(bytes).subspan(random() % 16, random() % 16384);
    const auto from = static_cast<std::uint32_t>(random());
    ASSERT_EQ(crc32c(part, from), crc32c_portable(part, from)) << part.size();
  }
}

}  // namespace
}  // namespace regroup::core
