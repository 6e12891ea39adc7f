// What every operation and message guarantees when the ranks run different operations, or one runs
// none.
#include <gmock/gmock.h>

#include <string>

#include "base/clock.h"
#include "tests/collective/conformance.h"

namespace regroup::collective::testing {
namespace {

using namespace std::chrono_literals;
using base::Code;
using base::Status;
using ::testing::HasSubstr;

constexpr proto::Generation kFirst = 1;

// The root of a broadcast or scatter, and a non-root of a reduce or gather.
bool may_exit_eagerly(const Shape& shape, int rank) {
  const bool from = shape.kind == Kind::kBroadcast || shape.kind == Kind::kScatter;
  const bool to = shape.kind == Kind::kReduce || shape.kind == Kind::kGather;
  return (from && rank == shape.root) || (to && rank != shape.root);
}

constexpr Shape kUsual{Kind::kAllreduce, Dtype::kFloat32, Op::kSum, 0, 1000};

// The operations of rank 1 and of all others, and the words by which a message tells them apart.
struct Row {
  const char* what;
  Shape odd;
  Shape usual;
  const char* odd_says;
  const char* usual_says;
};
constexpr Row kRows[] = {
    {"size",
     {Kind::kAllreduce, Dtype::kFloat32, Op::kSum, 0, 999},
     kUsual,
     " 3996 bytes",
     " 4000 bytes"},
    {"size, small",
     {Kind::kAllreduce, Dtype::kFloat32, Op::kSum, 0, 3},
     {Kind::kAllreduce, Dtype::kFloat32, Op::kSum, 0, 2},
     " 12 bytes",
     " 8 bytes"},
    {"nothing",
     {Kind::kAllreduce, Dtype::kFloat32, Op::kSum, 0, 0},
     kUsual,
     " 0 bytes",
     " 4000 bytes"},
    {"one large",
     {Kind::kAllreduce, Dtype::kFloat32, Op::kSum, 0, 200'000},
     kUsual,
     " 800000 bytes",
     " 4000 bytes"},
    {"type",
     {Kind::kAllreduce, Dtype::kInt32, Op::kSum, 0, 1000},
     kUsual,
     "(int32, sum",
     "(float32, sum"},
    {"op",
     {Kind::kAllreduce, Dtype::kFloat32, Op::kMin, 0, 1000},
     kUsual,
     "(float32, min",
     "(float32, sum"},
    {"kind",
     {Kind::kReduce, Dtype::kFloat32, Op::kSum, 0, 1000},
     kUsual,
     "in reduce of",
     "in allreduce of"},
    {"barrier",
     {Kind::kBarrier},
     {Kind::kBroadcast, Dtype::kUint8, Op::kSum, 0, 40'000},
     "in barrier",
     "in broadcast of"},
    {"root",
     {Kind::kBroadcast, Dtype::kUint8, Op::kSum, 1, 40},
     {Kind::kBroadcast, Dtype::kUint8, Op::kSum, 0, 40},
     "root 1",
     "root 0"},
    {"size of a block",
     {Kind::kAlltoall, Dtype::kUint8, Op::kSum, 0, 4},
     {Kind::kAlltoall, Dtype::kUint8, Op::kSum, 0, 40},
     " 4 bytes",
     " 40 bytes"},
};

// One rank runs another operation: an error in every rank, long before the deadline, that names
// both.
TEST_P(Failures, ReportAMismatchToAllRanks) {
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.what);
    reset();
    const auto body = [&](TestJob& job, int rank) {
      auto comm = job.open(make_job_world(kFirst, ranks()), rank);
      const Shape& mine = rank == 1 ? row.odd : row.usual;
      const Exchange exchange(mine, rank, ranks(), 1);
      const base::TimePoint begin = base::SystemClock().now();
      Status status = (*comm)->run(exchange.operation(), soon());
      // And left before it could learn it.
      const bool exited = may_exit_eagerly(mine, rank) && status.ok();
      if (exited) status = (*comm)->barrier(soon());
      EXPECT_LT(base::SystemClock().now() - begin, 10s);
      EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
      EXPECT_THAT(status.message(), HasSubstr(row.odd_says));
      EXPECT_THAT(status.message(), HasSubstr(exited ? "barrier" : row.usual_says));
      EXPECT_THAT(status.message(), HasSubstr("rank 1 "));
      ++board_->through;
      EXPECT_TRUE(eventually([&] { return board_->announced == kFirst; }));
      next_generation_works(job, kFirst, rank, {});
    };
    const auto agent = [&] {
      EXPECT_TRUE(
          eventually([&] { return board_->through == static_cast<std::uint64_t>(ranks()); }));
      job_->revoke(kFirst);
      board_->announced = kFirst;
    };
    run(body, agent);
  }
}

TEST_P(Failures, AMessageOfAnotherSizeFailsOnBothSides) {
  with_communicator([](Communicator& comm) {
    Bytes data(comm.rank() == 0 ? 10 : 12);
    if (comm.rank() > 1) return;
    const Status status = comm.rank() == 0 ? comm.run(Operation::send(data, 1), soon())
                                           : comm.run(Operation::receive(data, 0), soon());
    ASSERT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
    ASSERT_THAT(status.message(), HasSubstr("10"));
    ASSERT_THAT(status.message(), HasSubstr("12"));
  });
}

TEST_P(Failures, AnUnreceivedMessageEndsAtItsDeadlineOrTheRevoke) {
  const auto body = [&](TestJob& job, int rank) {
    auto comm = job.open(make_job_world(kFirst, ranks()), rank);
    Bytes data(100'000);
    if (rank == 0) {
      const Status status =
          (*comm)->run(Operation::send(data, 1), base::SystemClock().now() + 30ms);
      EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status.to_string();
      board_->mark[0] = 1;
    }
    if (rank == 3) {
      board_->mark[3] = 1;
      EXPECT_EQ((*comm)->run(Operation::receive(data, 1), soon()).code(), Code::kRevoked);
    }
  };
  run(body, [&] {
    EXPECT_TRUE(eventually([&] { return board_->mark[0] == 1 && board_->mark[3] == 1; }));
    job_->revoke(kFirst);
  });
}

}  // namespace
}  // namespace regroup::collective::testing
