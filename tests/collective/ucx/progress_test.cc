// The progress of an allreduce that a revoke has cut short, and its resumption in a later
// generation.
#include "collective/net/allreduce_progress.h"

#include <gmock/gmock.h>
#include <sys/mman.h>

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "collective/tree_reducer.h"
#include "tests/collective/harness.h"
#include "tests/collective/ucx/job.h"

namespace regroup::collective::ucx_progress {
namespace {

using namespace testing;
using ::testing::ElementsAre, ::testing::IsEmpty;

std::vector<std::pair<std::size_t, std::size_t>> plain(const std::vector<net::Range>& ranges) {
  std::vector<std::pair<std::size_t, std::size_t>> out;
  for (const net::Range& range : ranges) out.emplace_back(range.begin, range.end);
  return out;
}

TEST(UcxProgress, SurvivesARoundTrip) {
  const net::AllreduceProgress progress{{{0, 2}, {2, 3}}, {{0, 4}, {7, 9}}, 5};
  for (const net::AllreduceProgress& one :
       {progress, net::AllreduceProgress{progress.tree_nodes},
        net::AllreduceProgress{{}, progress.completed, 0}, net::AllreduceProgress{}}) {
    const auto intervals = net::encode(one);
    EXPECT_LE(std::as_bytes(std::span(intervals)).size(), net::max_encoded_bytes(2, 9));
    const net::AllreduceProgress back =
        net::decode_progress(std::as_bytes(std::span(intervals)), 9);
    EXPECT_EQ(back.tree_nodes, one.tree_nodes);
    EXPECT_EQ(back.completed, one.completed);
    EXPECT_EQ(back.generation, one.generation);
  }
}

TEST(UcxProgress, InvalidBlocksAreDropped) {
  const std::vector<proto::Interval> bad{{0, 1}, {},      {3, 5},  {4, 6}, {5, 5},
                                         {7, 6}, {8, 11}, {8, 10}, {0, 1}};
  EXPECT_THAT(net::decode_progress(std::as_bytes(std::span(bad)), 10).completed,
              ElementsAre(proto::Interval{3, 5}, proto::Interval{8, 10}));
}

TEST(UcxProgress, CommonBlocksAreThoseOfBothHosts) {
  const auto both = [](const net::Blocks& a, const net::Blocks& b, proto::Generation of_b = 1) {
    return net::common_blocks(net::AllreduceProgress{{}, a, 1},
                              net::AllreduceProgress{{}, b, of_b});
  };
  EXPECT_THAT(both({{0, 4}, {6, 9}}, {{2, 7}, {8, 20}}),
              ElementsAre(proto::Interval{2, 4}, proto::Interval{6, 7}, proto::Interval{8, 9}));
  EXPECT_THAT(both({{0, 4}}, {{4, 5}}), IsEmpty());
  EXPECT_THAT(both({}, {{4, 5}}), IsEmpty());
  EXPECT_THAT(both({{0, 4}}, {{0, 4}}, 2), IsEmpty());
}

TEST(UcxProgress, MarksOfOtherSumsDoNotCount) {
  std::array<std::atomic<std::uint32_t>, 6> marks{7, 7, 3, 0, 7, 8};
  std::atomic<std::uint32_t> generation{4};
  const SumBlocks blocks{marks, &generation, 7};
  EXPECT_THAT(net::marked(blocks), ElementsAre(proto::Interval{0, 2}, proto::Interval{4, 5}));
  net::mark(blocks, {2, 99});
  EXPECT_THAT(net::marked(blocks), ElementsAre(proto::Interval{0, 6}));
  EXPECT_THAT(net::marked({}), IsEmpty());
}

TEST(UcxProgress, ABeginKeepsOnlyTheRetainedMarks) {
  std::array<std::atomic<std::uint32_t>, 6> marks{7, 7, 3, 7, 7, 7};
  std::atomic<std::uint32_t> generation{4};
  const SumBlocks blocks{marks, &generation, 7};
  const net::Blocks kept{{1, 2}, {4, 5}};
  begin_sum(blocks, 4, kept);  // another member of this host has begun before
  EXPECT_THAT(net::marked(blocks), ElementsAre(proto::Interval{0, 2}, proto::Interval{3, 6}));
  begin_sum(blocks, 5, kept);
  EXPECT_EQ(generation, 5U);
  EXPECT_THAT(net::marked(blocks), ElementsAre(proto::Interval{1, 2}, proto::Interval{4, 5}));
  EXPECT_EQ(marks[2], 3U);
  begin_sum(blocks, 6);
  EXPECT_THAT(net::marked(blocks), IsEmpty());
  begin_sum({}, 7);
}

// Blocks of 128 elements begin at 0, 128 and 256; the last one has 44.
TEST(UcxProgress, ABlockIsCompleteOnceAllItsPartsAre) {
  const net::BlockGrid grid(300, 3);
  EXPECT_EQ(grid.whole_blocks({0, 300}), (proto::Interval{0, 3}));
  EXPECT_EQ(grid.whole_blocks({0, 299}), (proto::Interval{0, 2}));
  EXPECT_EQ(grid.whole_blocks({1, 256}), (proto::Interval{1, 2}));
  EXPECT_EQ(grid.whole_blocks({130, 200}).size(), 0U);
  EXPECT_THAT(plain(grid.missing({64, 300}, {{1, 2}})),
              ElementsAre(std::pair{64UL, 128UL}, std::pair{256UL, 300UL}));
  EXPECT_THAT(plain(grid.missing({130, 140}, {{1, 2}})), IsEmpty());
  EXPECT_THAT(plain(grid.missing({0, 300}, {})), ElementsAre(std::pair{0UL, 300UL}));
  const net::BlockGrid none(0, 3);
  EXPECT_THAT(plain(none.missing({0, 0}, {{0, 1}})), IsEmpty());
  EXPECT_EQ(none.whole_blocks({0, 0}).size(), 0U);
}

constexpr int kRanks = 4;
constexpr std::array<proto::NodeId, kRanks> kNodes{0, 1, 1, 2};
constexpr std::uint32_t kBlocks = 1023, kSum = 9;
constexpr std::size_t kElements = 1'000'003;
constexpr std::size_t kWidth = 1024;  // elements of a block
// A block of which both members of a host have a part, so that neither marks it.
constexpr std::size_t kSharedCoreTime = 500'032 / kWidth;

struct HostMemory {
  std::array<float, kElements> result;
  std::array<std::atomic<std::uint32_t>, kBlocks> marks;
  std::atomic<std::uint32_t> generation;
};

// Hosts of 1, 2 and 1 members, whose results and marks are in memory of their host.
class UcxResume : public ::testing::Test {
 protected:
  UcxResume() {
    void* memory = ::mmap(nullptr, 3 * sizeof(HostMemory), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    hosts_ = new (memory) HostMemory[3];
  }
  ~UcxResume() override { ::munmap(hosts_, 3 * sizeof(HostMemory)); }

  HostMemory& host_of(int rank) { return hosts_[kNodes.at(static_cast<std::size_t>(rank))]; }
  SumBlocks blocks_of(int rank) { return {host_of(rank).marks, &host_of(rank).generation, kSum}; }
  // In a rank: the sum in generation `g`, with leaves whose elements are all `value`. Ends when all
  // ranks have called `check`.
  void sum(testing::TestJob& job, proto::Generation g, int rank, float value,
           const std::function<void()>& check) {
    const auto comm = job.open(make_world(g, kRanks), rank);
    ASSERT_TRUE(comm.ok()) << comm.status().to_string();
    const std::vector<float> leaf(kElements, value);
    std::vector<Partial> partials;
    for (std::uint32_t r = 0; r < kRanks; ++r) {
      if (kNodes.at(r) == kNodes.at(static_cast<std::size_t>(rank)))
        partials.push_back({{r, r + 1}, std::as_bytes(std::span(leaf))});
    }
    const auto result = std::as_writable_bytes(std::span(host_of(rank).result));
    ASSERT_EQ((*comm)
                  ->tree_reducer()
                  .reduce(partials, kRanks, result, Dtype::kFloat32, soon(), blocks_of(rank))
                  .to_string(),
              "ok");
    check();
    ASSERT_EQ((*comm)->barrier(soon()).to_string(), "ok");
    job.leave(g, rank);
  }
  // Checks the result: elements of the first `blocks` blocks are `before`, the others `after`;
  // those of the block that is never marked are `always`. All other blocks are marked.
  void expect(proto::Generation g, int rank, std::size_t blocks, float before, float after,
              float always) {
    const auto& result = host_of(rank).result;
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < kElements; ++i) {
      const std::size_t block = i / kWidth;
      wrong += result.at(i) != (block == kSharedCoreTime ? always
                                : block < blocks         ? before
                                                         : after)
                   ? 1
                   : 0;
    }
    EXPECT_EQ(wrong, 0U) << "rank " << rank;
    EXPECT_EQ(host_of(rank).generation, g);
    EXPECT_THAT(net::marked(blocks_of(rank)),
                ElementsAre(proto::Interval{0, kSharedCoreTime},
                            proto::Interval{kSharedCoreTime + 1, kElements / kWidth + 1}));
  }

  HostMemory* hosts_;
};

// In a job, leaves have the same bits in all generations. Here they differ, which shows what is
// summed again.
TEST_F(UcxResume, BlocksThatAllHostsHaveAreNotSummedAgain) {
  const auto job = make_ucx_job({kNodes.begin(), kNodes.end()}, {.config = {{"TLS", "tcp"}}});
  run_all(Ranks::kProcesses, kRanks, [&](int rank) {
    const auto mine = job->in_child();
    sum(*mine, 1, rank, 1, [&] { expect(1, rank, kBlocks, 4, 4, 4); });
    sum(*mine, 2, rank, 2, [&] { expect(2, rank, kBlocks, 4, 4, 8); });
    for (std::size_t i = 700; rank == 0 && i < kBlocks; ++i) hosts_[0].marks.at(i) = 0;
    sum(*mine, 3, rank, 3, [&] { expect(3, rank, 700, 4, 12, 12); });
    for (std::size_t i = 0; rank == 0 && i < kBlocks; ++i) hosts_[0].marks.at(i) = 0;
    sum(*mine, 4, rank, 4, [&] { expect(4, rank, kBlocks, 16, 16, 16); });
    if (rank == 0) host_of(0).generation = 3;  // as if it had not been in the last generation
    sum(*mine, 5, rank, 5, [&] { expect(5, rank, kBlocks, 20, 20, 20); });
  });
}

// The members of a single host mark no blocks, so the next generation ignores what other hosts
// have.
TEST_F(UcxResume, OneHostSumsEverythingAgain) {
  const auto job = make_ucx_job({1, 1}, {.config = {{"TLS", "tcp"}}});
  net::mark(blocks_of(1), {0, kBlocks});
  run_all(Ranks::kProcesses, 2, [&](int rank) {
    const auto mine = job->in_child();
    const auto comm = mine->open(make_world(3, 2), rank);
    ASSERT_TRUE(comm.ok()) << comm.status().to_string();
    const std::vector<float> leaf(kElements, 2);
    const Partial all{{0, 1}, std::as_bytes(std::span(leaf))};
    const auto result = std::as_writable_bytes(std::span(hosts_[1].result));
    ASSERT_EQ((*comm)
                  ->tree_reducer()
                  .reduce(std::span(&all, 1), 1, result, Dtype::kFloat32, soon(), blocks_of(1))
                  .to_string(),
              "ok");
    ASSERT_EQ((*comm)->barrier(soon()).to_string(), "ok");
    EXPECT_THAT(hosts_[1].result, ::testing::Each(2.0F));
    EXPECT_THAT(net::marked(blocks_of(1)), IsEmpty());
    EXPECT_EQ(hosts_[1].generation, 3U);
  });
}

}  // namespace
}  // namespace regroup::collective::ucx_progress
