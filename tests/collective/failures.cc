// What every operation promises when something goes wrong, and that the next generation works.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "tests/collective/conformance.h"

namespace regroup::collective::testing {

using namespace std::chrono_literals;
using core::Code;
using core::Status;
using ::testing::HasSubstr;

void Failures::next_generation_works(Job& job, core::Generation g, int rank, const std::vector<int>& absent) {
  job.leave(g, rank);
  auto next = job.open(make_job_world(g + 1, ranks(), absent), rank);
  ASSERT_TRUE(next.ok()) << next.status().to_string();
  for (Kind kind : kCollectives) {
    const Status status = run_checked(**next, {kind, Dtype::kFloat64, Op::kSum, 0, 3000}, g, soon());
    ASSERT_TRUE(status.ok()) << "after " << g << ": " << status.to_string();
  }
  job.leave(g + 1, rank);
}

void Failures::reset() {
  job_ = GetParam().backend.make(ranks());
  for (auto& mark : board_->mark) mark = 0;
  board_->through = 0;
  board_->announced = 0;
}

void Failures::bury_and_revoke(int rank, core::Generation g) {
  job_->bury(rank);
  job_->revoke(g);
}

namespace {

constexpr int kVictim = 2;
constexpr core::Generation kFirst = 1;

Shape shape_of(Kind kind) { return {kind, Dtype::kFloat32, Op::kSum, 0, 60'000}; }

// The root of a broadcast or scatter, and who only contributes to a reduction or gathering.
bool is_giver(const Shape& shape, int rank) {
  const bool from = shape.kind == Kind::kBroadcast || shape.kind == Kind::kScatter;
  const bool to = shape.kind == Kind::kReduce || shape.kind == Kind::kGather;
  return (from && rank == shape.root) || (to && rank != shape.root);
}

// A dead process; a thread cannot be killed, so it only stays away.
void die(bool process) {
  if (process) ::raise(SIGKILL);
}

// True once `rank`, whose process writes its id to the board first, is dead.
bool await_death(const Board& board, int rank) {
  const auto pid = static_cast<id_t>(board.mark[rank].load());
  siginfo_t info{};
  return ::waitid(P_PID, pid, &info, WEXITED | WNOWAIT) == 0;
}

// Kills the process of `rank`. Before it has written its id there is nobody to kill: 0 would be all of us.
void kill_marked(const Board& board, int rank) {
  const auto pid = static_cast<pid_t>(board.mark[rank].load());
  if (pid == 0) return ADD_FAILURE() << "rank " << rank << " has not begun";
  EXPECT_EQ(::kill(pid, SIGKILL), 0);
  EXPECT_TRUE(await_death(board, rank));
}

TEST_P(Failures, AMemberDiesBeforeAnOperation) {
  for (Kind kind : kCollectives) {
    SCOPED_TRACE(name_of(kind));
    reset();
    const auto body = [&](Job& job, int rank) {
      if (rank == kVictim) board_->mark[rank] = static_cast<std::uint64_t>(::getpid());
      auto comm = job.open(make_job_world(kFirst, ranks()), rank);
      ASSERT_EQ(run_checked(**comm, shape_of(Kind::kAllreduce), 1, soon()).to_string(), "ok");
      ++board_->through;
      const auto all_through = [&] { return board_->through == static_cast<std::uint64_t>(ranks()); };
      if (rank == kVictim) {
        EXPECT_TRUE(eventually(all_through));  // its last letters could die with it
        die(processes());
      }
      if (rank == kVictim) return job.leave(kFirst, rank);
      const Status status = run_checked(**comm, shape_of(kind), 2, soon());
      ASSERT_EQ(status.code(), Code::kRevoked) << status.to_string();
      ASSERT_EQ((*comm)->barrier(soon()).code(), Code::kRevoked);
      next_generation_works(job, kFirst, rank, {kVictim});
    };
    const auto agent = [&] {
      EXPECT_TRUE(eventually([&] { return board_->through == static_cast<std::uint64_t>(ranks()); }));
      EXPECT_TRUE(!processes() || await_death(*board_, kVictim));
      bury_and_revoke(kVictim, kFirst);
    };
    run(body, agent, kVictim);
  }
}

// Killed anywhere in a row of operations; the others see nothing but the revoke.
TEST_P(Failures, AMemberDiesInsideAnOperation) {
  if (!processes()) GTEST_SKIP() << "threads cannot be killed";
  std::mt19937_64 random(3);
  for (int round = 0; round < 18; ++round) {
    const Kind kind = kCollectives[static_cast<std::size_t>(round) % std::size(kCollectives)];
    SCOPED_TRACE(name_of(kind));
    reset();
    const std::uint64_t moment = 1 + random() % 20;
    const auto body = [&](Job& job, int rank) {
      if (rank == kVictim) board_->mark[rank] = static_cast<std::uint64_t>(::getpid());
      auto comm = job.open(make_job_world(kFirst, ranks()), rank);
      Status status;
      for (std::uint64_t k = 1; status.ok(); ++k) {
        status = run_checked(**comm, shape_of(kind), k, soon());
        if (rank == 0) board_->through = k;
      }
      ASSERT_EQ(status.code(), Code::kRevoked) << status.to_string();
      next_generation_works(job, kFirst, rank, {kVictim});
    };
    const auto agent = [&] {
      EXPECT_TRUE(eventually([&] { return board_->through >= moment && board_->mark[kVictim] != 0; }));
      kill_marked(*board_, kVictim);
      bury_and_revoke(kVictim, kFirst);
    };
    run(body, agent, kVictim);
  }
}

// Who came back from an operation has done its part: the others come back from it too. Where its last letters
// may die with it, those who lack one see the revoke.
TEST_P(Failures, AMemberDiesAfterAnOperation) {
  const bool letters_may_die = GetParam().backend.letters_may_die;
  std::uint64_t cut_short = 0;  // operations
  for (Kind kind : kCollectives) {
    SCOPED_TRACE(name_of(kind));
    reset();
    const auto body = [&](Job& job, int rank) {
      auto comm = job.open(make_job_world(kFirst, ranks()), rank);
      const Status status =
          run_checked(**comm, {kind, Dtype::kFloat32, Op::kSum, kVictim, 60'000}, 1, soon());
      if (status.ok()) board_->mark[rank] = 1;
      ASSERT_TRUE(status.ok() || (letters_may_die && status.code() == Code::kRevoked)) << status.to_string();
      if (rank == kVictim) return die(processes());
      ASSERT_EQ((*comm)->barrier(soon()).code(), Code::kRevoked);
      if (!processes()) job.leave(kFirst, kVictim);
      next_generation_works(job, kFirst, rank, {kVictim});
    };
    const auto agent = [&] {
      const core::TimePoint late = core::SystemClock().now() + 10s;
      const auto through = [&] {
        return std::all_of(board_->mark, board_->mark + ranks(), [](auto& mark) { return mark == 1; });
      };
      const auto cut = [&] {
        return letters_may_die && board_->mark[kVictim] == 1 && core::SystemClock().now() > late;
      };
      EXPECT_TRUE(eventually([&] { return through() || cut(); }));
      cut_short += through() ? 0 : 1;
      bury_and_revoke(kVictim, kFirst);
    };
    run(body, agent, kVictim);
  }
  EXPECT_LE(cut_short, 1U);  // it takes a roll call on its way, and a peer that does not read
}

// A stopped member, or one that computes for ever, is named when the deadline passes.
TEST_P(Failures, AMemberThatStandsStillIsNamedAtTheDeadline) {
  for (Kind kind : kCollectives) {
    SCOPED_TRACE(name_of(kind));
    reset();
    const auto body = [&](Job& job, int rank) {
      auto comm = job.open(make_job_world(kFirst, ranks()), rank);
      if (rank == kVictim) {
        board_->mark[rank] = static_cast<std::uint64_t>(::getpid());
        if (processes()) ::raise(SIGSTOP);
        EXPECT_TRUE(eventually([&] { return board_->through == static_cast<std::uint64_t>(ranks() - 1); }));
        return job.leave(kFirst, rank);
      }
      const auto begin = core::SystemClock().now();
      const Status status = run_checked(**comm, shape_of(kind), 1, begin + 60ms);
      EXPECT_GE(core::SystemClock().now() - begin, 60ms);
      EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status.to_string();
      EXPECT_THAT(status.message(), ::testing::ContainsRegex("rank [^a-z]*2[^a-z]* of 4 did not arrive"));
      EXPECT_EQ((*comm)->barrier(soon()).message(), status.message());  // final
      ++board_->through;
      EXPECT_TRUE(eventually([&] { return board_->announced == kFirst; }));
      next_generation_works(job, kFirst, rank, {kVictim});
    };
    const auto agent = [&] {
      EXPECT_TRUE(eventually([&] { return board_->through == static_cast<std::uint64_t>(ranks() - 1); }));
      if (processes()) {
        kill_marked(*board_, kVictim);
      }
      bury_and_revoke(kVictim, kFirst);
      board_->announced = kFirst;
    };
    run(body, agent, kVictim);
  }
}

// Late by more than the others care to spin.
TEST_P(Failures, ASlowMemberDelaysAndNothingElse) {
  with_communicator([&](Communicator& comm) {
    for (Kind kind : kCollectives) {
      const auto end = core::SystemClock().now() + 10ms;
      while (comm.rank() == kVictim && core::SystemClock().now() < end) {
      }
      ASSERT_EQ(run_checked(comm, shape_of(kind), 1, soon()).to_string(), "ok");
    }
  });
}

// One rank calls something else: an error in every rank, long before the deadline, that names both.
TEST_P(Failures, RanksThatDisagreeAllLearnIt) {
  const Shape usual{Kind::kAllreduce, Dtype::kFloat32, Op::kSum, 0, 1000};
  const struct {
    const char* what;
    Shape odd;
    Shape usual;
  } rows[] = {
      {"size", {Kind::kAllreduce, Dtype::kFloat32, Op::kSum, 0, 999}, usual},
      {"size, small",
       {Kind::kAllreduce, Dtype::kFloat32, Op::kSum, 0, 3},
       {Kind::kAllreduce, Dtype::kFloat32, Op::kSum, 0, 2}},
      {"nothing", {Kind::kAllreduce, Dtype::kFloat32, Op::kSum, 0, 0}, usual},
      {"one large", {Kind::kAllreduce, Dtype::kFloat32, Op::kSum, 0, 200'000}, usual},
      {"type", {Kind::kAllreduce, Dtype::kInt32, Op::kSum, 0, 1000}, usual},
      {"op", {Kind::kAllreduce, Dtype::kFloat32, Op::kMin, 0, 1000}, usual},
      {"kind", {Kind::kReduce, Dtype::kFloat32, Op::kSum, 0, 1000}, usual},
      {"barrier", {Kind::kBarrier}, {Kind::kBroadcast, Dtype::kUint8, Op::kSum, 0, 40'000}},
      {"root",
       {Kind::kBroadcast, Dtype::kUint8, Op::kSum, 1, 40},
       {Kind::kBroadcast, Dtype::kUint8, Op::kSum, 0, 40}},
      {"size",
       {Kind::kAlltoall, Dtype::kUint8, Op::kSum, 0, 4},
       {Kind::kAlltoall, Dtype::kUint8, Op::kSum, 0, 40}},
  };
  core::Generation g = kFirst;
  for (const auto& row : rows) {
    SCOPED_TRACE(row.what);
    board_->through = 0;
    const auto body = [&](Job& job, int rank) {
      auto comm = job.open(make_job_world(g, ranks()), rank);
      const Shape& mine = rank == 1 ? row.odd : row.usual;
      const Exchange exchange(mine, rank, ranks(), g);
      Status status = (*comm)->run(exchange.operation(), soon());
      const bool gave = is_giver(mine, rank) && status.ok();  // and left before it could learn it
      if (gave) status = (*comm)->barrier(soon());
      EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
      EXPECT_THAT(status.message(), HasSubstr(name_of(row.odd.kind)));
      EXPECT_THAT(status.message(), HasSubstr(name_of(row.usual.kind)));
      EXPECT_THAT(status.message(), HasSubstr("rank 1 "));
      ++board_->through;
      EXPECT_TRUE(eventually([&] { return board_->announced == g; }));
      next_generation_works(job, g, rank, {});
    };
    const auto agent = [&] {
      EXPECT_TRUE(eventually([&] { return board_->through == static_cast<std::uint64_t>(ranks()); }));
      job_->revoke(g);
      board_->announced = g;
    };
    run(body, agent);
    job_->revoke(g + 1);
    g += 2;
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

TEST_P(Failures, AMessageThatNobodyReceivesMeetsItsDeadlineOrTheRevoke) {
  const auto body = [&](Job& job, int rank) {
    auto comm = job.open(make_job_world(kFirst, ranks()), rank);
    Bytes data(100'000);
    if (rank == 0) {
      const Status status = (*comm)->run(Operation::send(data, 1), core::SystemClock().now() + 30ms);
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
