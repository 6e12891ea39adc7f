// Lengths of a state, as writers on another host say them, and the files from which fuzz_share
// begins.
#include "elastic/share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/base/golden_files.h"

namespace regroup::elastic {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kRoom = 3 * shmem::kSnapshotChunk + 17;  // as fuzz_share has it

struct Seed {
  const char* name;
  std::vector<std::uint64_t> lengths;  // one by each writer
};
const Seed kSeeds[] = {{"nothing", {0, 0}},
                       {"one_writer", {kRoom}},
                       {"three_writers", {kRoom, kRoom, kRoom}},
                       {"more_writers_than_chunks", {1000, 1000, 1000}}};

TEST(ShareGolden, DISABLED_WriteGoldenFiles) {
  for (const Seed& seed : kSeeds)
    base::write_golden("share", seed.name, std::as_bytes(std::span(seed.lengths)));
}

TEST(ShareGolden, EveryFileIsItsSample) {
  for (const Seed& seed : kSeeds) {
    const auto bytes = std::as_bytes(std::span(seed.lengths));
    EXPECT_TRUE(base::read_golden("share", seed.name) == std::vector(bytes.begin(), bytes.end()))
        << seed.name;
  }
}

TEST(Share, RefusesALengthThatIsTooLargeOrDiffers) {
  const auto arena = shmem::Arena::create({.elements = 1, .snapshot_bytes = kRoom});
  ASSERT_TRUE(arena.ok()) << arena.status().to_string();
  EXPECT_TRUE(check_length(*arena, 2, kRoom, std::nullopt).ok());
  EXPECT_TRUE(check_length(*arena, 2, 0, 0).ok());
  for (const std::uint64_t length : {kRoom + 1, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    const base::Status status = check_length(*arena, 2, length, std::nullopt);
    EXPECT_EQ(status.code(), base::Code::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr("rank 2")) << length;
  }
  EXPECT_THAT(check_length(*arena, 2, 7, 8).message(),
              HasSubstr("a state of 7 bytes, other ranks one of 8"));
}

TEST(Share, SharesOfAllWritersMakeTheStateAndItsCrcs) {
  const auto arena = shmem::Arena::create({.elements = 1, .snapshot_bytes = kRoom});
  ASSERT_TRUE(arena.ok()) << arena.status().to_string();
  const Share first(*arena, share_of(0, 3, kRoom), kRoom);
  const Share last(*arena, share_of(2, 3, kRoom), kRoom);
  EXPECT_EQ(first.data.data(), arena->snapshot().data());
  EXPECT_EQ(last.data.data() + last.data.size(), arena->snapshot().data() + kRoom);
  EXPECT_EQ(last.crcs.data() + last.crcs.size(),
            std::as_bytes(arena->snapshot_crcs()).data() + 4 * sizeof(std::uint32_t));
}

}  // namespace
}  // namespace regroup::elastic
