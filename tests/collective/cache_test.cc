// The size of the cache, from folders as the kernel shows them, and what is stored past it.
#include "collective/shm/cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace regroup::collective::testing {
namespace {

namespace fs = std::filesystem;

class Cache : public ::testing::Test {
 protected:
  Cache() { fs::remove_all(folder_); }
  ~Cache() override { fs::remove_all(folder_); }

  void add(int index, const std::string& level, const std::string& size) const {
    const fs::path cache = folder_ / ("index" + std::to_string(index));
    fs::create_directories(cache);
    std::ofstream(cache / "level") << level << "\n";
    std::ofstream(cache / "size") << size << "\n";
  }

  const fs::path folder_ = fs::path(::testing::TempDir()) / ("cache_test." + std::to_string(::getpid()));
};

TEST_F(Cache, TheHighestLevelCounts) {
  add(0, "1", "32K");
  add(1, "1", "32K");
  add(2, "2", "1024K");
  EXPECT_EQ(last_level_cache(folder_), 1U << 20);
  add(3, "3", "32768K");
  EXPECT_EQ(last_level_cache(folder_), 32U << 20);
}

TEST_F(Cache, WhatCannotBeReadIsAssumed) {
  EXPECT_EQ(last_level_cache(folder_), kAssumedCache);
  add(0, "1", "much");
  EXPECT_EQ(last_level_cache(folder_), kAssumedCache);
  add(1, "2", "512K");
  EXPECT_EQ(last_level_cache(folder_), 512U << 10);
}

TEST(Stores, GoPastACacheThatDoesNotHoldThem) {
  constexpr std::size_t kEighth = 1 << 20;
  const struct {
    Written written;
    std::size_t eighths;  // from which on
  } rows[] = {
      {Written::kReceived, 4},
      {Written::kReduced, 3},
      {Written::kCopied, 2},
      {Written::kKept, 8},
  };
  for (const auto& row : rows) {
    const std::size_t least = row.eighths * kEighth;
    EXPECT_EQ(stores_of(row.written, 0, 8 * kEighth), Stores::kPlain) << row.eighths;
    EXPECT_EQ(stores_of(row.written, least - 1, 8 * kEighth), Stores::kPlain) << row.eighths;
    EXPECT_EQ(stores_of(row.written, least, 8 * kEighth), Stores::kStream) << row.eighths;
  }
}

}  // namespace
}  // namespace regroup::collective::testing
