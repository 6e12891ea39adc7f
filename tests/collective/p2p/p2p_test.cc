// Communicators over point-to-point messages, which the threads of a test pass to each other as an
// MPI may: short ones at once, long ones when both sides are there. tests/pmi/test_mpi_header.py
// has real MPIs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "regroup/point_to_point.h"
#include "tests/collective/conformance.h"

namespace regroup::collective::testing::p2p {
namespace {

constexpr std::size_t kEager = 1000;  // longer messages wait for their receiver

// A message, or a receive that waits for one.
struct Side {
  Input from;
  std::vector<std::byte> kept;
  Output to;
  std::shared_ptr<bool> done = std::make_shared<bool>(false);
};

// The messages of one communicator, of all its ranks.
struct Hub {
  using Channel = std::tuple<int, int, int>;  // from, to, tag
  std::mutex mutex;
  std::map<Channel, std::deque<Side>> sent, wanted;
  std::string error;
  struct Split {
    std::map<int, int> colors;  // by rank
    std::map<int, std::shared_ptr<Hub>> parts;
  };
  std::map<int, Split> splits;

  void match(const Channel& channel) {
    for (auto &a = sent[channel], &b = wanted[channel]; !a.empty() && !b.empty();) {
      Side &from = a.front(), &to = b.front();
      EXPECT_EQ(from.from.size(), to.to.size());
      if (!to.to.empty()) std::memcpy(to.to.data(), from.from.data(), to.to.size());
      *from.done = *to.done = true;
      a.pop_front();
      b.pop_front();
    }
  }
};

class Threads final : public PointToPoint {
 public:
  Threads(std::shared_ptr<Hub> hub, int rank, int size)
      : hub_(std::move(hub)), rank_(rank), size_(size) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  std::size_t send(int to, int tag, Input data) override {
    const std::lock_guard lock(hub_->mutex);
    Side side{.from = data};
    under_way_.push_back(side.done);
    if (data.size() <= kEager) {
      side.kept.assign(data.begin(), data.end());
      *std::exchange(side.done, std::make_shared<bool>(false)) = true;
    }
    Side& kept = hub_->sent[{rank_, to, tag}].emplace_back(std::move(side));
    if (data.size() <= kEager) kept.from = kept.kept;
    hub_->match({rank_, to, tag});
    return under_way_.size() - 1;
  }
  std::size_t receive(int from, int tag, Output data) override {
    const std::lock_guard lock(hub_->mutex);
    Side& side = hub_->wanted[{from, rank_, tag}].emplace_back(Side{.to = data});
    under_way_.push_back(side.done);
    hub_->match({from, rank_, tag});
    return under_way_.size() - 1;
  }
  bool done(std::size_t number) override {
    const std::lock_guard lock(hub_->mutex);
    return *under_way_[number];
  }
  void cancel(std::size_t number) override {
    const std::lock_guard lock(hub_->mutex);
    for (auto& [channel, sides] : hub_->wanted)
      std::erase_if(sides, [&](const Side& side) { return side.done == under_way_[number]; });
  }
  std::optional<int> arrived(int tag) override {
    const std::lock_guard lock(hub_->mutex);
    for (int from = 0; from < size_; ++from) {
      if (!hub_->sent[{from, rank_, tag}].empty()) return from;
    }
    return std::nullopt;
  }
  std::unique_ptr<PointToPoint> split(int color) override;
  [[nodiscard]] std::string error() const override {
    const std::lock_guard lock(hub_->mutex);
    return hub_->error;
  }

 private:
  const std::shared_ptr<Hub> hub_;
  const int rank_;
  const int size_;
  int splits_ = 0;
  std::vector<std::shared_ptr<bool>> under_way_;
};

std::unique_ptr<PointToPoint> Threads::split(int color) {
  const auto all = static_cast<std::size_t>(size_);
  Hub::Split* split = nullptr;
  {
    const std::lock_guard lock(hub_->mutex);
    split = &hub_->splits[splits_++];
    split->colors[rank_] = color;
  }
  EXPECT_TRUE(eventually([&] {
    const std::lock_guard lock(hub_->mutex);
    return split->colors.size() == all;
  }));
  if (color < 0) return nullptr;
  const std::lock_guard lock(hub_->mutex);
  int rank = 0, size = 0;
  for (const auto& [each, its] : split->colors) {
    if (its != color) continue;
    if (each == rank_) rank = size;
    size += 1;
  }
  auto& part = split->parts[color];
  if (part == nullptr) part = std::make_shared<Hub>();
  return std::make_unique<Threads>(part, rank, size);
}

class P2pJob final : public TestJob {
 public:
  explicit P2pJob(int ranks) : ranks_(ranks) {}
  base::Result<std::unique_ptr<Communicator>> open(const proto::World& /*world*/,
                                                   int rank) override {
    return make_communicator(std::make_unique<Threads>(hub_, rank, ranks_));
  }
  // It has no generations.
  void leave(proto::Generation, int) override {}
  void revoke(proto::Generation) override {}
  void bury(int) override {}
  void replace(int) override {}
  [[nodiscard]] proto::NodeId host_of(int rank) const override {
    return static_cast<proto::NodeId>(rank);
  }
  std::unique_ptr<TestJob> in_child() override { return nullptr; }
  [[nodiscard]] Hub& hub() { return *hub_; }

 private:
  const std::shared_ptr<Hub> hub_ = std::make_shared<Hub>();
  const int ranks_;
};

std::unique_ptr<TestJob> make_job(int ranks) { return std::make_unique<P2pJob>(ranks); }

constexpr Backend kP2p{"P2p", false, make_job};
INSTANTIATE_TEST_SUITE_P(P2p, Conformance, ::testing::Values(Setting{kP2p, 1}, Setting{kP2p, 4}),
                         name_of_setting);
INSTANTIATE_TEST_SUITE_P(P2p, Sums, ::testing::ValuesIn(sizes_to_nine_of(kP2p)), name_of_setting);

using Body = std::function<void(Communicator&)>;

void with_ranks(P2pJob& job, int ranks, const Body& body) {
  run_all(Ranks::kThreads, ranks, [&](int rank) {
    auto comm = job.open({}, rank);
    ASSERT_TRUE(comm.ok());
    body(**comm);
  });
}

TEST(PointToPoint, AMismatchIsToldToAllRanks) {
  P2pJob job(4);
  with_ranks(job, 4, [](Communicator& comm) {
    Bytes data(4000);
    const auto status = comm.rank() == 1 ? comm.barrier(soon())
                                         : comm.allreduce(data, data, Dtype::kFloat32, soon());
    EXPECT_EQ(status.code(), base::Code::kInvalidArgument) << status.to_string();
    EXPECT_THAT(status.message(), ::testing::HasSubstr("barrier"));
    EXPECT_THAT(status.message(), ::testing::HasSubstr("allreduce of 4000 bytes (float32, sum)"));
    EXPECT_EQ(comm.barrier(soon()).to_string(), status.to_string()) << "every failure is final";
  });
}

TEST(PointToPoint, AMessageOfAnotherSizeIsToldToItsSender) {
  P2pJob job(2);
  with_ranks(job, 2, [](Communicator& comm) {
    Bytes data(comm.rank() == 0 ? 5000 : 4000);
    auto request = comm.start(
        comm.rank() == 0 ? Operation::send(data, 1) : Operation::receive(data, 0), soon());
    ASSERT_TRUE(request.ok());
    base::Status status = request->wait();
    if (status.ok()) status = comm.barrier(soon());
    EXPECT_EQ(status.code(), base::Code::kInvalidArgument);
    EXPECT_EQ(status.message(), "message: rank 0 sent 5000 bytes, rank 1 wants 4000");
  });
}

TEST(PointToPoint, AnErrorOfTheLibraryIsALostPeer) {
  P2pJob job(2);
  const auto comm = job.open({}, 1);
  ASSERT_TRUE(comm.ok());
  job.hub().error = "MPI_Isend: a reason";
  EXPECT_EQ((*comm)->barrier(soon()).to_string(), "peer lost: MPI_Isend: a reason");
}

TEST(PointToPoint, LeavesHaveTheBitsOfTheCanonicalTreeWhicheverRankHasThem) {
  constexpr std::uint32_t kLeaves = 7;
  std::vector<Bytes> leaves;
  for (std::uint32_t i = 0; i < kLeaves; ++i)
    leaves.push_back(make_leaf(Dtype::kFloat32, 99, i, true));
  const Bytes want = reference_sum(Dtype::kFloat32, leaves, {0, kLeaves});
  for (const int ranks : {1, 2, 3}) {
    P2pJob job(ranks);
    with_ranks(job, ranks, [&](Communicator& comm) {
      std::vector<Leaf> mine;
      for (std::uint32_t i = 0; i < kLeaves; ++i) {
        if (static_cast<int>(i * 5 % 3) % comm.size() == comm.rank())
          mine.push_back({i, leaves[i]});
      }
      Bytes result(want.size());
      ASSERT_TRUE(allreduce_leaves(comm, mine, kLeaves, result, Dtype::kFloat32, soon()).ok());
      EXPECT_EQ(result, want);
    });
  }
}

TEST(PointToPoint, AMissingLeafIsRefused) {
  P2pJob job(2);
  with_ranks(job, 2, [](Communicator& comm) {
    Bytes data(8), result(8);
    const Leaf leaf{static_cast<std::uint32_t>(comm.rank()), data};
    const auto status =
        allreduce_leaves(comm, std::span(&leaf, 1), 3, result, Dtype::kFloat32, soon());
    EXPECT_EQ(status.code(), base::Code::kInvalidArgument) << status.to_string();
  });
}

}  // namespace
}  // namespace regroup::collective::testing::p2p
