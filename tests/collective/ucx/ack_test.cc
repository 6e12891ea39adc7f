// Messages without an ack of their own: how many are unacked, and that the end of a mesh waits for
// acks.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <memory>

#include "base/clock.h"
#include "collective/ucx/communicator.h"
#include "tests/collective/exchange.h"
#include "tests/collective/harness.h"
#include "tests/collective/ucx/job.h"

namespace regroup::collective::testing::ucx_ack {
namespace {

// Shared memory of all ranks.
struct Board {
  std::atomic<int> stages[64];
};

class UcxAck : public ::testing::Test {
 protected:
  UcxAck() {
    void* memory =
        ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    board_ = new (memory) Board();
  }
  ~UcxAck() override { ::munmap(board_, sizeof(Board)); }

  // Calls `body(rank, comm)` in ranks that are on a host each.
  void run(
      int ranks, const ucx::UcxSettings& settings,
      const std::function<void(int, std::unique_ptr<Communicator>&)>& body,
      const std::function<void(int)>& before = [](int) {}) {
    const auto job = make_ucx_apart_with(ranks, settings);
    run_all(Ranks::kProcesses, ranks, [&](int rank) {
      before(rank);
      const auto mine = job->in_child();
      auto comm = mine->open(make_world(1, static_cast<std::uint32_t>(ranks)), rank);
      ASSERT_TRUE(comm.ok()) << comm.status().to_string();
      body(rank, *comm);
    });
  }
  // A barrier of the test.
  void barrier(int ranks) {
    auto& arrived = board_->stages[stage_++];
    ++arrived;
    EXPECT_TRUE(eventually([&] { return arrived == ranks; }));
  }
  static const ucx::PeerMesh& mesh_of(const Communicator& comm) {
    return dynamic_cast<const ucx::UcxCommunicator&>(comm).engine().mesh();
  }
  // Runs the operation; returns the number of unacked messages to each rank when all ranks have
  // returned.
  std::vector<std::uint64_t> unacked_after(Communicator& comm, const Shape& shape) {
    EXPECT_EQ(run_checked(comm, shape, 1, soon()).to_string(), "ok") << shape.to_string();
    barrier(comm.size());
    std::vector<std::uint64_t> out;
    for (int rank = 0; rank < comm.size(); ++rank) out.push_back(mesh_of(comm).unacked(rank));
    barrier(comm.size());
    return out;
  }

  Board* board_;
  int stage_ = 0;

 private:
  static std::unique_ptr<TestJob> make_ucx_apart_with(int ranks, const ucx::UcxSettings& settings) {
    std::vector<proto::NodeId> nodes;
    for (int rank = 0; rank < ranks; ++rank) nodes.push_back(static_cast<proto::NodeId>(rank));
    return make_ucx_job(std::move(nodes), settings);
  }
};

const ucx::UcxSettings kTcp{.config = {{"TLS", "tcp"}}};
constexpr Shape sum_of(std::size_t bytes) {
  return {Kind::kAllreduce, Dtype::kFloat32, Op::kSum, 0, bytes / 4};
}
constexpr Shape to_root(std::size_t bytes) {
  return {Kind::kReduce, Dtype::kFloat32, Op::kSum, 0, bytes / 4};
}
constexpr Shape kBarrier{Kind::kBarrier};
constexpr Shape kGather{Kind::kGather, Dtype::kUint8, Op::kSum, 0, 8};

// A rank that returns has received its partner's messages, and acks them in its next message. After
// a swap one message each way is unacked.
TEST_F(UcxAck, BetweenTwoHostsTravelsWithTheNextMessage) {
  run(2, kTcp, [&](int rank, auto& comm) {
    const auto left = [&](const Shape& shape) {
      return unacked_after(*comm, shape)[static_cast<std::size_t>(1 - rank)];
    };
    for (const Shape& shape : {sum_of(8), kBarrier, sum_of(16 << 10)}) {
      EXPECT_EQ(left(shape), 1U) << shape.to_string();
    }
    for (const Shape& shape : {kGather, to_root(1 << 10), to_root(1 << 20)}) {
      EXPECT_LE(left(shape), 1U) << shape.to_string();  // of the barrier at its end
      EXPECT_EQ(left(sum_of(8)), 1U) << shape.to_string();
    }
  });
}

// With halving, a result is sent once the partner's half has arrived; nothing answers the last
// results.
TEST_F(UcxAck, OfHalvesTravelsWithTheResults) {
  run(2, kTcp, [&](int rank, auto& comm) {
    const auto left = [&](const Shape& shape) {
      return unacked_after(*comm, shape)[static_cast<std::size_t>(1 - rank)];
    };
    for (int round = 0; round < 3; ++round) {
      EXPECT_LE(left(sum_of(1 << 20)), 2U);  // one for each chunk
      EXPECT_EQ(left(sum_of(8)), 1U);
    }
  });
}

// The end of a mesh acks, also to a member that goes on.
TEST_F(UcxAck, ArrivesBeforeTheMeshCloses) {
  run(2, kTcp, [&](int rank, auto& comm) {
    ASSERT_EQ(unacked_after(*comm, sum_of(8))[static_cast<std::size_t>(1 - rank)], 1U);
    if (rank == 0) {
      comm.reset();
      return;
    }
    Bytes message(8);
    auto request = comm->start(Operation::receive(message, 0), soon());
    ASSERT_TRUE(request.ok());
    EXPECT_TRUE(eventually([&] {
      static_cast<void>(request->test());
      return mesh_of(*comm).unacked(0) == 0;
    }));
  });
}

// Rank 0 returns and leaves 400 ms before rank 1 reads on, while a part of its message is still in
// its kernel, because the receive buffer is full. UCX reads once more after a close, which is not
// all of it.
TEST_F(UcxAck, IsAwaitedWhileAMessageIsUndelivered) {
  constexpr int kThrough = 60, kClosed = 61;
  const auto body = [&](int rank, auto& comm) {
    ASSERT_EQ(unacked_after(*comm, sum_of(8)).size(), 2U);
    const Bytes in(48 << 10, std::byte{1});
    Bytes out(in.size());
    auto request = comm->start(Operation::allreduce(in, out, Dtype::kInt32, Op::kSum), soon());
    ASSERT_TRUE(request.ok()) << request.status().to_string();
    if (rank == 0) {
      EXPECT_EQ(request->wait().to_string(), "ok");
      board_->stages[kThrough] = 1;
      comm.reset();
      board_->stages[kClosed] = 1;
      return;
    }
    EXPECT_TRUE(eventually([&] { return board_->stages[kThrough] == 1; }));
    const base::TimePoint end = base::SystemClock().now() + std::chrono::milliseconds(400);
    EXPECT_TRUE(eventually(
        [&] { return base::SystemClock().now() > end || board_->stages[kClosed] == 1; }));
    EXPECT_EQ(request->wait().to_string(), "ok");
    EXPECT_EQ(out, Bytes(in.size(), std::byte{2}));
  };
  run(2, kTcp, body, [](int rank) {
    if (rank == 1) ::setenv("UCX_TCP_RCVBUF", "4096", 1);
  });
}

}  // namespace
}  // namespace regroup::collective::testing::ucx_ack
