// A sum over several hosts in two generations. In the second one the leaves have other values,
// which shows what is summed again (in a job they have the same bits). However the first generation
// ends, and whichever members the second one has, all hosts end with the same result, and each
// element is of the first or the second generation.
#include <gmock/gmock.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): kill is not in <csignal>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "collective/sum_blocks.h"
#include "collective/tree_reducer.h"
#include "tests/collective/harness.h"
#include "tests/collective/ucx/job.h"

namespace regroup::collective::ucx_resume {
namespace {

using namespace testing;
using proto::Interval;

constexpr std::uint32_t kBlocks = 1023, kSum = 9;
constexpr std::size_t kElements = 2'000'003;
constexpr float kFirst = 1, kThen = 3;  // of each element of a leaf

struct HostMemory {
  std::array<std::byte, 4 * kElements> result;
  std::array<std::atomic<std::uint32_t>, kBlocks> marks;
  std::atomic<std::uint32_t> generation;
};
struct Memory {
  std::array<HostMemory, 4> hosts;
  std::atomic<pid_t> victim;
};

// By host: the nodes of the canonical tree that it holds.
using Split = std::vector<std::vector<Interval>>;

struct Case {
  const char* name;
  // By rank; the last rank is in the first generation only if `loses`.
  std::vector<proto::NodeId> nodes;
  bool loses;
  std::uint32_t leaves;
  Split first, then;
  Dtype dtype = Dtype::kFloat32;
};

// `value`: a whole number up to 2048, which float16 represents exactly.
std::uint16_t half_of(float value) {
  const auto n = static_cast<std::uint32_t>(value);
  const int exponent = std::bit_width(n) - 1;
  return static_cast<std::uint16_t>(((15 + exponent) << 10) + ((n << 10 >> exponent) & 0x3FF));
}

std::vector<std::byte> filled(Dtype dtype, float value) {
  std::vector<std::byte> out(kElements * size_of(dtype));
  const std::uint16_t half = half_of(value);
  for (std::size_t at = 0; at < out.size(); at += size_of(dtype)) {
    std::memcpy(out.data() + at, size_of(dtype) == 2 ? static_cast<const void*>(&half) : &value,
                size_of(dtype));
  }
  return out;
}

class UcxResume : public ::testing::TestWithParam<Case> {
 protected:
  UcxResume() {
    void* memory =
        ::mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    memory_ = static_cast<Memory*>(memory);
    start_anew();
  }
  ~UcxResume() override { ::munmap(memory_, sizeof(Memory)); }

  static int ranks() { return static_cast<int>(GetParam().nodes.size()); }
  static int last() { return ranks() - 1; }
  static proto::NodeId node_of(int rank) {
    return GetParam().nodes.at(static_cast<std::size_t>(rank));
  }
  static proto::World world(proto::Generation g) {
    return make_world(g, static_cast<std::uint32_t>(ranks()) - (g > 1 && GetParam().loses ? 1 : 0));
  }
  std::span<std::byte> result_on(proto::NodeId node) {
    return std::span(memory_->hosts.at(node).result).first(kElements * size_of(GetParam().dtype));
  }

  base::Status sum(Communicator& comm, const Split& split, int rank, float value) {
    std::vector<std::vector<std::byte>> data;
    std::vector<Partial> partials;
    for (const Interval& node : split.at(node_of(rank)))
      data.push_back(filled(GetParam().dtype, value * static_cast<float>(node.size())));
    for (std::size_t i = 0; i < data.size(); ++i)
      partials.push_back({split.at(node_of(rank))[i], data[i]});
    HostMemory& host = memory_->hosts.at(node_of(rank));
    return comm.tree_reducer().reduce(partials, GetParam().leaves, result_on(node_of(rank)),
                                      GetParam().dtype, soon(),
                                      {host.marks, &host.generation, kSum});
  }
  // In a rank: the first generation, unless `whole` possibly revoked, then the second.
  void both(TestJob& job, int rank, bool whole) {
    auto comm = job.open(world(1), rank);
    ASSERT_TRUE(comm.ok()) << comm.status().to_string();
    const base::Status status = sum(**comm, GetParam().first, rank, kFirst);
    ASSERT_TRUE(status.ok() || (!whole && status.code() == base::Code::kRevoked))
        << status.to_string();
    if (whole) {
      ASSERT_EQ((*comm)->barrier(soon()).to_string(), "ok");
    }
    comm->reset();
    job.leave(1, rank);
    if (GetParam().loses && rank == last()) return;
    comm = job.open(world(2), rank);
    ASSERT_TRUE(comm.ok()) << comm.status().to_string();
    ASSERT_EQ(sum(**comm, GetParam().then, rank, kThen).to_string(), "ok");
    ASSERT_EQ((*comm)->barrier(soon()).to_string(), "ok");
    job.leave(2, rank);
  }
  // After both: the number of elements of the first generation. All others must be of the second.
  std::size_t kept() {
    const auto width = size_of(GetParam().dtype);
    const auto leaves = static_cast<float>(GetParam().leaves);
    const auto first = filled(GetParam().dtype, kFirst * leaves),
               then = filled(GetParam().dtype, kThen * leaves);
    std::size_t of_first = 0, of_none = 0;
    const std::byte* const mine = result_on(0).data();
    for (std::size_t at = 0; at < first.size(); at += width) {
      const bool old = std::memcmp(mine + at, first.data(), width) == 0;
      of_first += old ? 1 : 0;
      of_none += old || std::memcmp(mine + at, then.data(), width) == 0 ? 0 : 1;
    }
    EXPECT_EQ(of_none, 0U);
    for (int rank = 0; rank < ranks(); ++rank) {
      if (GetParam().loses && rank == last()) continue;
      EXPECT_TRUE(std::ranges::equal(result_on(node_of(rank)), result_on(0))) << "rank " << rank;
      EXPECT_EQ(memory_->hosts.at(node_of(rank)).generation, 2U) << "rank " << rank;
    }
    return of_first;
  }
  std::size_t marked_on(proto::NodeId node) {
    return static_cast<std::size_t>(std::ranges::count_if(
        memory_->hosts.at(node).marks, [](const auto& mark) { return mark.load() == kSum; }));
  }
  void start_anew() {
    new (memory_) Memory();
    job_ = make_ucx_job(GetParam().nodes, {.config = {{"TLS", "tcp"}}});
  }

  Memory* memory_;
  std::unique_ptr<TestJob> job_;
};

// Only blocks of which two members of a host have a part each are not marked.
TEST_P(UcxResume, AfterAWholeSumFewBlocksAreSummedAgain) {
  run_all(Ranks::kProcesses, ranks(), [&](int rank) { both(*job_->in_child(), rank, true); });
  const std::size_t block = kElements / kBlocks + 64;
  EXPECT_GE(kept(), kElements - 4 * block);
}

// The agent watches the marks of the first host, then revokes; a rank that is lost is killed at
// that moment.
TEST_P(UcxResume, ResumesAfterAnInterruptionAtAnyPoint) {
  constexpr int kLeast = 5, kMost = 40;  // rounds: the agent may come when the sum is over
  std::mt19937_64 random(11);
  int in_the_midst = 0;
  for (int round = 0; round < kLeast || (in_the_midst == 0 && round < kMost); ++round) {
    SCOPED_TRACE(round);
    start_anew();
    const std::size_t enough = 1 + random() % (kBlocks / 2);
    const auto body = [&](int rank) {
      if (rank == last()) memory_->victim = ::getpid();
      both(*job_->in_child(), rank, false);
    };
    const auto agent = [&] {
      EXPECT_TRUE(eventually([&] { return marked_on(0) >= enough; }));
      if (GetParam().loses) {
        EXPECT_EQ(::kill(memory_->victim, SIGKILL), 0);
        siginfo_t info{};
        EXPECT_EQ(
            ::waitid(P_PID, static_cast<id_t>(memory_->victim.load()), &info, WEXITED | WNOWAIT),
            0);
        job_->bury(last());
      }
      job_->revoke(1);
    };
    run_all(Ranks::kProcesses, ranks(), body, agent, GetParam().loses ? last() : -1);
    const std::size_t old = kept();
    in_the_midst += old > 0 && old < kElements - kElements / 8 ? 1 : 0;
  }
  EXPECT_GT(in_the_midst, 0);
}

INSTANTIATE_TEST_SUITE_P(All, UcxResume,
                         ::testing::Values(Case{"FourHosts",
                                                {0, 1, 2, 3},
                                                false,
                                                4,
                                                {{{0, 1}}, {{1, 2}}, {{2, 3}}, {{3, 4}}},
                                                {{{0, 1}}, {{1, 2}}, {{2, 3}}, {{3, 4}}}},
                                           Case{"OthersHaveTheLeaves",
                                                {0, 1, 1, 2},
                                                false,
                                                6,
                                                {{{0, 2}}, {{2, 4}}, {{4, 6}}},
                                                {{{0, 1}, {4, 6}}, {{1, 2}}, {{2, 4}}}},
                                           Case{"AHostWithoutLeaves",
                                                {0, 1, 1, 2},
                                                false,
                                                4,
                                                {{{0, 2}}, {{2, 4}}, {}},
                                                {{}, {{0, 2}}, {{2, 4}}}},
                                           Case{"AHostIsLost",
                                                {0, 0, 1, 2},
                                                true,
                                                4,
                                                {{{0, 2}}, {{2, 3}}, {{3, 4}}},
                                                {{{0, 2}, {3, 4}}, {{2, 3}}}},
                                           Case{"AMemberIsLost",
                                                {0, 1, 2, 1},
                                                true,
                                                4,
                                                {{{0, 1}}, {{1, 2}, {3, 4}}, {{2, 3}}},
                                                {{{0, 1}, {3, 4}}, {{1, 2}}, {{2, 3}}}},
                                           Case{"Float16",
                                                {0, 1, 1, 2},
                                                false,
                                                4,
                                                {{{0, 1}}, {{1, 2}, {2, 3}}, {{3, 4}}},
                                                {{{0, 1}}, {{1, 2}, {2, 3}}, {{3, 4}}},
                                                Dtype::kFloat16}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace regroup::collective::ucx_resume
