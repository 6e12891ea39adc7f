// Addresses and last words as the bytes that members give each other.
#include "collective/ucx/contact.h"

#include <gtest/gtest.h>

#include <cstring>

namespace regroup::collective {
namespace {

const std::vector<Contact> kContacts = {{AF_INET, 4000, 24, {10, 0, 0, 1}}, {AF_INET6, 4001, 64, {0xfd}}};

std::vector<std::byte> with_count(std::vector<std::byte> bytes, std::uint32_t count) {
  std::memcpy(bytes.data(), &count, sizeof count);
  return bytes;
}

TEST(UcxContact, ComesBackWithAndWithoutAWord) {
  for (const char* word : {"", "rank 2 does a sum of 20"}) {
    const auto bytes = encode(kContacts, word);
    EXPECT_EQ(decode(bytes), kContacts);
    EXPECT_EQ(last_word_in(bytes), word);
  }
  EXPECT_EQ(last_word_in(encode({}, "a word alone")), "a word alone");
}

TEST(UcxContact, HasNoWordBehindAFalseCount) {
  const auto bytes = encode(kContacts, "word");
  for (const std::uint32_t count : {3U, 1U << 20, ~0U}) {
    EXPECT_EQ(last_word_in(with_count(bytes, count)), "") << count;
    EXPECT_TRUE(decode(with_count(bytes, count)).empty()) << count;
  }
}

TEST(UcxContact, IsNothingWhereTheCountIsCutOff) {
  for (std::size_t size = 0; size < sizeof(std::uint32_t); ++size) {
    const std::vector<std::byte> bytes(size);
    EXPECT_TRUE(decode(bytes).empty());
    EXPECT_EQ(last_word_in(bytes), "");
  }
}

}  // namespace
}  // namespace regroup::collective
