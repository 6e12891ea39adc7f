// When copies by CMA are tried, and how the members agree on whether they worked; without a
// communicator.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "collective/shm/single_copy.h"
#include "tests/collective/reference.h"

namespace regroup::collective::testing::shm_single_copy_state {
namespace {

constexpr std::size_t kRanks = 3;
constexpr std::size_t kBlock = 1 << 20;
const shm::Offsets kOutside{shm::kNotInArena, shm::kNotInArena, -1};

// The payloads of three ranks, of which `blind` exposes nothing.
std::vector<Bytes> announced(const shm::RemoteBuffer& memory, std::size_t blind = kRanks) {
  std::vector<Bytes> payloads;
  for (std::size_t r = 0; r < kRanks; ++r) {
    shm::SingleCopy theirs(shm::SingleCopyMode::kAuto);
    const Input payload = theirs.announce(kOutside, r == blind ? shm::RemoteBuffer() : memory);
    payloads.emplace_back(payload.begin(), payload.end());
  }
  return payloads;
}

auto in(const std::vector<Bytes>& payloads) {
  return [&](std::size_t rank) { return payloads[rank].data(); };
}

TEST(ShmSingleCopyState, TriesLargeOperationsOrAll) {
  shm::SingleCopy automatic(shm::SingleCopyMode::kAuto);
  EXPECT_TRUE(automatic.tries(Kind::kScatter, kBlock, kRanks));
  EXPECT_FALSE(automatic.tries(Kind::kScatter, kBlock, 2));
  EXPECT_FALSE(automatic.tries(Kind::kAllgather, kBlock, kRanks));
  shm::SingleCopy always(shm::SingleCopyMode::kAlways);
  EXPECT_TRUE(always.tries(Kind::kAllgather, 1, 2));
  EXPECT_FALSE(always.tries(Kind::kAllreduce, kBlock, kRanks)) << "it computes";
  EXPECT_FALSE(always.tries(Kind::kScatter, kBlock, 1));
  shm::SingleCopy never(shm::SingleCopyMode::kNever);
  EXPECT_FALSE(never.tries(Kind::kScatter, kBlock, kRanks));
}

TEST(ShmSingleCopyState, ReadsWhatAllHaveExposed) {
  Bytes data(1000, std::byte{7});
  shm::LivenessCanary canary;
  const auto payloads = announced(canary.expose(data));
  shm::SingleCopy mine(shm::SingleCopyMode::kAuto);
  ASSERT_TRUE(mine.collect({.kind = Kind::kAllgather}, kRanks, in(payloads)));
  Bytes out(100);
  if (!mine.read(1, 50, out)) GTEST_SKIP() << "the kernel refuses CMA";
  EXPECT_EQ(out, Bytes(100, std::byte{7}));
  const Input vote = mine.vote();
  const std::vector<Bytes> votes(kRanks, Bytes(vote.begin(), vote.end()));
  EXPECT_TRUE(mine.count_votes(kRanks, in(votes)));
  EXPECT_EQ(mine.done(), 1U);
}

TEST(ShmSingleCopyState, SkipsAWhileAfterARankExposedNothing) {
  Bytes data(8);
  shm::LivenessCanary canary;
  const auto payloads = announced(canary.expose(data), 1);
  shm::SingleCopy mine(shm::SingleCopyMode::kAuto);
  ASSERT_TRUE(mine.tries(Kind::kScatter, kBlock, kRanks));
  EXPECT_TRUE(mine.collect({.kind = Kind::kScatter, .root = 0}, kRanks, in(payloads)))
      << "1 is not the root";
  EXPECT_FALSE(mine.collect({.kind = Kind::kScatter, .root = 1}, kRanks, in(payloads)));
  int skipped = 0;
  while (!mine.tries(Kind::kScatter, kBlock, kRanks)) ++skipped;
  EXPECT_EQ(skipped, 15);
}

TEST(ShmSingleCopyState, StopsForEverOnceAMemberCouldNotRead) {
  Bytes data(8);
  shm::LivenessCanary canary;
  auto payloads = announced(canary.expose(data));
  canary.withdraw();
  shm::SingleCopy mine(shm::SingleCopyMode::kAlways);
  ASSERT_TRUE(mine.collect({.kind = Kind::kAllgather}, kRanks, in(payloads)));
  Bytes out(8);
  EXPECT_FALSE(mine.read(0, 0, out)) << "its owner has given up";
  std::vector<Bytes> votes(kRanks, Bytes(8, std::byte{1}));
  const Input vote = mine.vote();
  votes[2].assign(vote.begin(), vote.end());
  EXPECT_FALSE(mine.count_votes(kRanks, in(votes)));
  EXPECT_FALSE(mine.tries(Kind::kAllgather, kBlock, kRanks));
  EXPECT_EQ(mine.done(), 0U);
}

}  // namespace
}  // namespace regroup::collective::testing::shm_single_copy_state
