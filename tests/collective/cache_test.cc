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
  constexpr std::size_t kCache = 1 << 20;
  constexpr std::size_t kHalf = kCache / 2;
  const struct {
    Kind kind;
    std::size_t bytes, read;
    Stores stores;
  } rows[] = {
      {Kind::kAllreduce, 0, 0, Stores::kPlain},
      {Kind::kAllreduce, kHalf, 0, Stores::kPlain},
      {Kind::kAllreduce, kHalf + 1, 0, Stores::kStream},
      {Kind::kAllreduce, kHalf, kHalf - 1, Stores::kPlain},
      {Kind::kAllreduce, kHalf, kHalf, Stores::kStream},  // with nothing left of it
      {Kind::kAllreduce, 64, kCache, Stores::kStream},
      {Kind::kAllgather, kHalf, kHalf - 64, Stores::kPlain},
      {Kind::kAlltoall, kHalf + 1, 0, Stores::kStream},
      {Kind::kReduce, kHalf, 0, Stores::kPlain},
      {Kind::kBroadcast, kHalf - 1, 0, Stores::kPlain},
      {Kind::kBroadcast, kHalf, 0, Stores::kStream},  // a root's: from the half on
      {Kind::kScatter, kHalf, 0, Stores::kStream},
      {Kind::kScatter, 64, kCache - 65, Stores::kPlain},
      {Kind::kScatter, 64, kCache - 64, Stores::kStream},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(stores_of(row.kind, row.bytes, row.read, kCache), row.stores)
        << name_of(row.kind) << ", " << row.bytes << " bytes, " << row.read << " read";
  }
}

}  // namespace
}  // namespace regroup::collective::testing
