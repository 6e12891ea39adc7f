// The size of the cache, from folders as the kernel shows them, and what is stored past it.
#include "collective/shm/cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace regroup::collective::testing::cache {
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

TEST(Stores, SayWhatIsWritten) {
  EXPECT_EQ(written(Kind::kAllreduce, false, false), Written::kReduced);
  EXPECT_EQ(written(Kind::kAllreduce, false, true), Written::kReceived);
  EXPECT_EQ(written(Kind::kReduceScatter, false, false), Written::kReduced);
  for (const Kind kind : {Kind::kAllreduce, Kind::kReduce, Kind::kReduceScatter, Kind::kAlltoall}) {
    EXPECT_EQ(written(kind, true, true), Written::kKept) << name_of(kind);
  }
  EXPECT_EQ(written(Kind::kSumPartials, false, false), Written::kKept);
  EXPECT_EQ(written(Kind::kAlltoall, false, false), Written::kReceived);
  EXPECT_EQ(written(Kind::kAllgather, true, true), Written::kReceived);
  EXPECT_EQ(written(Kind::kGather, true, false), Written::kReceived);
  EXPECT_EQ(written(Kind::kBroadcast, false, true), Written::kCopied);
  EXPECT_EQ(written(Kind::kScatter, true, false), Written::kCopied);
}

TEST(Stores, CountMemoryThatIsBothOnce) {
  EXPECT_EQ(footprint(Kind::kAllreduce, false, 20, 10), 30U);
  EXPECT_EQ(footprint(Kind::kAllreduce, true, 20, 20), 40U);  // replaces what was read
  EXPECT_EQ(footprint(Kind::kAllgather, false, 20, 40), 60U);
  EXPECT_EQ(footprint(Kind::kAllgather, true, 20, 40), 40U);
  EXPECT_EQ(footprint(Kind::kGather, true, 20, 20), 40U);
  EXPECT_EQ(footprint(Kind::kBroadcast, false, 10, 20), 20U);  // the root's result is its input
  EXPECT_EQ(footprint(Kind::kScatter, false, 20, 20), 40U);
}

}  // namespace
}  // namespace regroup::collective::testing::cache
