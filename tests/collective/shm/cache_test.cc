// The size of the cache, from sysfs-like folders, and which stores bypass it.
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

  const fs::path folder_ =
      fs::path(::testing::TempDir()) / ("cache_test." + std::to_string(::getpid()));
};

TEST_F(Cache, UsesTheHighestLevel) {
  add(0, "1", "32K");
  add(1, "1", "32K");
  add(2, "2", "1024K");
  EXPECT_EQ(shm::last_level_cache(folder_), 1U << 20);
  add(3, "3", "32768K");
  EXPECT_EQ(shm::last_level_cache(folder_), 32U << 20);
}

TEST_F(Cache, AssumesASizeIfItCannotBeRead) {
  EXPECT_EQ(shm::last_level_cache(folder_), shm::kAssumedCache);
  add(0, "1", "much");
  EXPECT_EQ(shm::last_level_cache(folder_), shm::kAssumedCache);
  add(1, "2", "512K");
  EXPECT_EQ(shm::last_level_cache(folder_), 512U << 10);
}

TEST(Stores, BypassACacheThatIsTooSmall) {
  constexpr std::size_t kEighth = 1 << 20;
  const struct {
    shm::StoreHint store_hint;
    std::size_t eighths;  // from which on
  } rows[] = {
      {shm::StoreHint::kReceived, 4},
      {shm::StoreHint::kReduced, 3},
      {shm::StoreHint::kCopied, 2},
      {shm::StoreHint::kKept, 8},
  };
  for (const auto& row : rows) {
    const std::size_t least = row.eighths * kEighth;
    EXPECT_EQ(shm::stores_of(row.store_hint, 0, 8 * kEighth), reduce::Stores::kPlain)
        << row.eighths;
    EXPECT_EQ(shm::stores_of(row.store_hint, least - 1, 8 * kEighth), reduce::Stores::kPlain)
        << row.eighths;
    EXPECT_EQ(shm::stores_of(row.store_hint, least, 8 * kEighth), reduce::Stores::kStream)
        << row.eighths;
  }
}

TEST(Stores, StoreHintFollowsKindAndMemory) {
  EXPECT_EQ(shm::store_hint(Kind::kAllreduce, false, false), shm::StoreHint::kReduced);
  EXPECT_EQ(shm::store_hint(Kind::kAllreduce, false, true), shm::StoreHint::kReceived);
  EXPECT_EQ(shm::store_hint(Kind::kReduceScatter, false, false), shm::StoreHint::kReduced);
  for (const Kind kind : {Kind::kAllreduce, Kind::kReduce, Kind::kReduceScatter, Kind::kAlltoall}) {
    EXPECT_EQ(shm::store_hint(kind, true, true), shm::StoreHint::kKept) << name_of(kind);
  }
  EXPECT_EQ(shm::store_hint(Kind::kAlltoall, false, false), shm::StoreHint::kReceived);
  EXPECT_EQ(shm::store_hint(Kind::kAllgather, true, true), shm::StoreHint::kReceived);
  EXPECT_EQ(shm::store_hint(Kind::kGather, true, false), shm::StoreHint::kReceived);
  EXPECT_EQ(shm::store_hint(Kind::kBroadcast, false, true), shm::StoreHint::kCopied);
  EXPECT_EQ(shm::store_hint(Kind::kScatter, true, false), shm::StoreHint::kCopied);
}

TEST(Stores, FootprintCountsSharedMemoryOnce) {
  EXPECT_EQ(shm::footprint(Kind::kAllreduce, false, 20, 10), 30U);
  EXPECT_EQ(shm::footprint(Kind::kAllreduce, true, 20, 20), 40U);  // replaces what was read
  EXPECT_EQ(shm::footprint(Kind::kAllgather, false, 20, 40), 60U);
  EXPECT_EQ(shm::footprint(Kind::kAllgather, true, 20, 40), 40U);
  EXPECT_EQ(shm::footprint(Kind::kGather, true, 20, 20), 40U);
  EXPECT_EQ(shm::footprint(Kind::kBroadcast, false, 10, 20),
            20U);  // the root's result is its input
  EXPECT_EQ(shm::footprint(Kind::kScatter, false, 20, 20), 40U);
}

}  // namespace
}  // namespace regroup::collective::testing::cache
