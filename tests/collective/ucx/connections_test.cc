// Members connect only to members that they exchange messages with, because each connection costs
// UCX a millisecond or more on both sides.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <memory>

#include "collective/ucx/communicator.h"
#include "tests/collective/exchange.h"
#include "tests/collective/harness.h"
#include "tests/collective/ucx/job.h"

namespace regroup::collective::testing::ucx_connections {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAreArray;

constexpr int kMaxRanks = 6;  // number of ranks
constexpr int kStages = 8;    // most calls of count() in a body

// Shared memory of all ranks.
struct Counts {
  std::atomic<std::size_t> connections[kStages][kMaxRanks];
  std::atomic<int> counted[kStages];  // ranks
};

class UcxConnections : public ::testing::Test {
 protected:
  // A rank of a generation.
  class Rank {
   public:
    Rank(Communicator& comm, Counts& counts) : comm_(comm), counts_(counts) {}

    void run(const Shape& shape) { expect_ok(run_checked(comm_, shape, 1, soon())); }
    void send(int from, int to) {
      Bytes data(100, std::byte(comm_.rank()));
      if (comm_.rank() == from) expect_ok(comm_.run(Operation::send(data, to), soon()));
      if (comm_.rank() == to) {
        expect_ok(comm_.run(Operation::receive(data, from), soon()));
        EXPECT_EQ(data, Bytes(100, std::byte(from)));
      }
    }
    // Records the number of its connections; then waits until all ranks have.
    void count() {
      const auto& engine = dynamic_cast<const ucx::UcxCommunicator&>(comm_).engine();
      counts_.connections[stage_][comm_.rank()] = engine.mesh().connections();
      auto& counted = counts_.counted[stage_++];
      ++counted;
      EXPECT_TRUE(eventually([&] { return counted == comm_.size(); }));
    }

   private:
    static void expect_ok(const base::Status& status) {
      EXPECT_TRUE(status.ok()) << status.to_string();
    }

    Communicator& comm_;
    Counts& counts_;
    int stage_ = 0;
  };

  UcxConnections() {
    void* memory =
        ::mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    counts_ = new (memory) Counts();
  }
  ~UcxConnections() override { ::munmap(counts_, sizeof(Counts)); }

  // Runs `body` in ranks on `nodes`. However long an operation takes, ranks probe only those that
  // they are connected to.
  void run(const std::vector<proto::NodeId>& nodes, const std::function<void(Rank&)>& body) {
    const auto ranks = static_cast<int>(nodes.size());
    const auto job = make_ucx_job(nodes, {.config = {{"TLS", "tcp"}}, .probe_interval = 1h});
    run_all(Ranks::kProcesses, ranks, [&](int rank) {
      const auto mine = job->in_child();
      const auto comm = mine->open(make_world(1, static_cast<std::uint32_t>(ranks)), rank);
      ASSERT_TRUE(comm.ok()) << comm.status().to_string();
      Rank one(**comm, *counts_);
      body(one);
    });
  }
  [[nodiscard]] std::vector<std::size_t> seen(int stage, int ranks) const {
    return {counts_->connections[stage], counts_->connections[stage] + ranks};
  }

  Counts* counts_;
};

Shape sum_of(std::size_t bytes) {
  return {Kind::kAllreduce, Dtype::kFloat32, Op::kSum, 0, bytes / 4};
}
constexpr Shape kBarrier{Kind::kBarrier};

TEST_F(UcxConnections, FourHostsOfOneConnectWithTheirPartnersOnly) {
  const auto body = [](Rank& rank) {
    for (const Shape& shape : {sum_of(8), kBarrier, sum_of(1 << 20)}) {
      rank.run(shape);
      rank.count();
    }
  };
  run({0, 1, 2, 3}, body);
  for (int stage = 0; stage < 3; ++stage)
    EXPECT_THAT(seen(stage, 4), ElementsAreArray({2, 2, 2, 2}));
}

TEST_F(UcxConnections, ABarrierOfFourHostsOpensNoFurtherConnection) {
  const auto body = [](Rank& rank) {
    rank.run(kBarrier);
    rank.count();
  };
  run({0, 1, 2, 3}, body);
  EXPECT_THAT(seen(0, 4), ElementsAreArray({2, 2, 2, 2}));
}

// Small sums go through the first rank of each host, a large one in slices through each rank; a
// message connects its sender and its receiver, whichever of them must connect.
TEST_F(UcxConnections, ThreeHostsOfTwoConnectOwnersOfSlices) {
  const auto body = [](Rank& rank) {
    for (const Shape& shape : {sum_of(64), kBarrier}) {
      rank.run(shape);
      rank.count();
    }
    rank.send(1, 2);
    rank.send(5, 0);
    rank.count();
    rank.run(sum_of(1 << 20));
    rank.count();
  };
  run({0, 0, 1, 1, 2, 2}, body);
  EXPECT_THAT(seen(0, 6), ElementsAreArray({2, 0, 1, 0, 1, 0}));
  EXPECT_THAT(seen(1, 6), ElementsAreArray({2, 0, 2, 0, 2, 0}));
  EXPECT_THAT(seen(2, 6), ElementsAreArray({3, 1, 3, 0, 2, 1}));
  EXPECT_THAT(seen(3, 6), ElementsAreArray({3, 3, 3, 2, 2, 3}));
}

}  // namespace
}  // namespace regroup::collective::testing::ucx_connections
