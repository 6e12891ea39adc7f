// What every operation guarantees when something fails: a revoke ends each wait at once, a deadline
// names the missing ranks, and the arena serves the next generation. The test is the agent; it acts
// once it has seen in the arena that the ranks are where it wants them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <optional>

#include "base/clock.h"
#include "collective/shm/communicator.h"
#include "collective/shm/factory.h"
#include "collective/tree_reducer.h"
#include "tests/collective/harness.h"

namespace regroup::collective::testing::shm_failure {
namespace {

using namespace std::chrono_literals;
using base::Code;
using base::Status;

constexpr int kSize = 4;
constexpr std::uint32_t kElements = 1000;

std::unique_ptr<Communicator> open_comm(const shmem::Arena& arena, proto::Generation g, int slot,
                                        const CommunicatorOptions& options = {}) {
  const proto::World world = make_world(g, arena.spec().slots);
  auto comm = shm::make_shm(arena, world, {0, static_cast<proto::SlotIndex>(slot)}, options);
  EXPECT_TRUE(comm.ok()) << comm.status().to_string();
  return std::move(comm).value();
}

// Every operation, on data that needs several synchronisation points.
struct Operation {
  const char* name;
  std::function<Status(Communicator&, const shmem::Arena&, base::TimePoint)> run;
};

Status sum_leaves(Communicator& comm, const shmem::Arena& arena, base::TimePoint deadline) {
  std::vector<Partial> partials;
  for (std::uint32_t leaf = 0; leaf < kSize; ++leaf) {
    partials.push_back({{leaf, leaf + 1}, arena.buffer(static_cast<proto::SlotIndex>(leaf), 0)});
  }
  return comm.tree_reducer().reduce(partials, kSize, arena.result(1), Dtype::kFloat32, deadline);
}

const std::vector<Operation>& operations() {
  static const std::vector<Operation> kOperations = {
      {"barrier", [](Communicator& comm, const shmem::Arena&,
                     base::TimePoint deadline) { return comm.barrier(deadline); }},
      {"broadcast",
       [](Communicator& comm, const shmem::Arena&, base::TimePoint deadline) {
         std::vector<std::byte> data(700'000);
         return comm.broadcast(data, 1, deadline);
       }},
      {"allreduce",
       [](Communicator& comm, const shmem::Arena&, base::TimePoint deadline) {
         std::vector<std::byte> data(700'000);
         return comm.allreduce(data, data, Dtype::kFloat32, deadline);
       }},
      {"allreduce",
       [](Communicator& comm, const shmem::Arena&, base::TimePoint deadline) {
         std::vector<std::byte> data(8);
         return comm.allreduce(data, data, Dtype::kInt64, deadline);
       }},
      {"tree_reduce", sum_leaves},
  };
  return kOperations;
}

// True once each slot but `late` has arrived `times` times in generation g.
bool have_arrived(const shmem::Arena& arena, proto::Generation g, int late, std::uint64_t times) {
  for (int slot = 0; slot < kSize; ++slot) {
    const shmem::Channel& channel =
        arena.member_slot(static_cast<proto::SlotIndex>(slot)).channels[0];
    if (slot == late) continue;
    if (channel.instance.load() != static_cast<std::uint64_t>(g) << 40) return false;
    if (arrivals_in(channel) < times) return false;
  }
  return true;
}

class ShmFailure : public ::testing::TestWithParam<Ranks> {
 protected:
  shmem::Arena arena_ = make_arena({.slots = kSize, .shards = kSize, .elements = kElements});
};

// Rank 2 passes the first operation and stays away from the second; the others wait in it when the
// revoke comes.
TEST_P(ShmFailure, RevokeEndsEachOperationAtOnceAndTheNextGenerationWorks) {
  proto::Generation g = 0;
  for (const Operation& operation : operations()) {
    ++g;
    auto body = [&](const shmem::Arena& arena, int rank) {
      auto comm = open_comm(arena, g, rank);
      std::int64_t sum = 1;
      const auto bytes = std::as_writable_bytes(std::span(&sum, 1));
      ASSERT_TRUE(comm->allreduce(bytes, bytes, Dtype::kInt64, soon()).ok());
      ASSERT_EQ(sum, kSize);
      shmem::MemberSlot& mine = arena.member_slot(static_cast<proto::SlotIndex>(rank));
      mine.step.store(g);  // tells the agent that the first operation is complete
      ASSERT_TRUE(rank != 2 || eventually([&] { return mine.revoked_up_to.load() == g; }));
      for (int again = 0; again < 2; ++again) {
        const Status status = operation.run(*comm, arena, soon());
        ASSERT_EQ(status.code(), Code::kRevoked) << operation.name << ": " << status.to_string();
        ASSERT_EQ(status.message(), "generation " + std::to_string(g) + " is over");
      }
    };
    base::TimePoint revoked_at;
    auto agent = [&] {
      auto ready = [&] {
        return arena_.member_slot(2).step.load() == g && have_arrived(arena_, g, 2, 3);
      };
      EXPECT_TRUE(eventually(ready)) << operation.name;
      revoke_all(arena_, g);
      revoked_at = base::SystemClock().now();
    };
    run_ranks(arena_, GetParam(), kSize, body, agent);
    EXPECT_LT(base::SystemClock().now() - revoked_at, 20s)
        << operation.name;  // not the minute of soon()
    leave_all(arena_, g);
  }
}

// The members are anywhere in a series of operations when the revoke comes.
TEST_P(ShmFailure, RevokeEndsAnOperationAtAnyMoment) {
  std::mt19937_64 random(5);
  for (proto::Generation g = 1; g <= 30; ++g) {
    const std::uint64_t moment = 1 + random() % 60;
    auto body = [&](const shmem::Arena& arena, int rank) {
      auto comm = open_comm(arena, g, rank);
      Status status;
      for (std::size_t k = 0; status.ok(); ++k)
        status = operations()[k % 5].run(*comm, arena, soon());
      ASSERT_EQ(status.code(), Code::kRevoked) << status.to_string();
    };
    auto agent = [&] {
      EXPECT_TRUE(eventually([&] { return have_arrived(arena_, g, -1, moment); }));
      revoke_all(arena_, g);
    };
    run_ranks(arena_, GetParam(), kSize, body, agent);
    leave_all(arena_, g);
  }
}

TEST_P(ShmFailure, RevokeEndsAWorldBeforeItsFirstOperation) {
  revoke_all(arena_, 3);
  leave_all(arena_, 2);
  auto comm = open_comm(arena_, 3, 0);
  for (const Operation& operation : operations()) {
    EXPECT_EQ(operation.run(*comm, arena_, soon()).to_string(), "revoked: generation 3 is over");
  }
  EXPECT_EQ(comm->broadcast({}, 0, soon()).code(), Code::kRevoked);
  CommunicatorOptions alone;
  alone.ranks = {0};
  EXPECT_EQ(open_comm(arena_, 3, 0, alone)->barrier(soon()).code(), Code::kRevoked);
}

// The generation fence: rank 3 has not left generation 1, so nobody writes in generation 2, and a
// revoke ends that wait.
TEST_P(ShmFailure, NoRankWritesBeforeEarlierGenerationsAreLeft) {
  leave_all(arena_, 1);
  arena_.member_slot(3).left_generation.store(0);
  std::ranges::fill(arena_.result(1), std::byte{7});
  auto body = [&](const shmem::Arena& arena, int rank) {
    auto comm = open_comm(arena, 2, rank);
    const Status late = sum_leaves(*comm, arena, base::SystemClock().now() + 20ms);
    ASSERT_EQ(late.code(), Code::kDeadlineExceeded);
    ASSERT_THAT(late.message(),
                ::testing::MatchesRegex("tree_reduce: slot 3 \\(left 0\\) did not leave the "
                                        "generations before after 0.*s in generation 2"));
    ASSERT_EQ(open_comm(arena, 2, rank)->allreduce({}, {}, Dtype::kInt32, soon()).code(),
              Code::kOk);
    std::vector<std::byte> data(8);
    arena.member_slot(static_cast<proto::SlotIndex>(rank))
        .step.store(1);  // tells the agent that the last operation begins
    const Status over = open_comm(arena, 2, rank)->allreduce(data, data, Dtype::kInt64, soon());
    ASSERT_EQ(over.code(), Code::kRevoked) << over.to_string();
  };
  auto agent = [&] {
    auto asleep = [&](proto::SlotIndex slot) {
      return arena_.member_slot(slot).step.load() == 1 &&
             arena_.member_slot(slot).bell.sleeping.load() != 0;
    };
    EXPECT_TRUE(eventually([&] { return asleep(0) && asleep(1) && asleep(2) && asleep(3); }));
    revoke_all(arena_, 2);
  };
  run_ranks(arena_, GetParam(), kSize, body, agent);
  EXPECT_TRUE(std::ranges::all_of(arena_.result(1), [](std::byte b) { return b == std::byte{7}; }));
}

TEST_P(ShmFailure, TheFenceOpensWhenTheLastOneLeavesOrDies) {
  for (const bool dies : {false, true}) {
    const proto::Generation g = dies ? 5 : 3;
    leave_all(arena_, g - 1);
    arena_.member_slot(3).left_generation.store(g - 2);
    auto body = [&](const shmem::Arena& arena, int rank) {
      if (rank == 3) return;
      CommunicatorOptions options;
      options.ranks = {0, 1, 2};
      auto comm = open_comm(arena, g, rank, options);
      const Status status = sum_leaves(*comm, arena, soon());
      ASSERT_TRUE(status.ok()) << status.to_string();
    };
    auto agent = [&] {
      EXPECT_TRUE(eventually([&] { return arena_.member_slot(0).bell.sleeping.load() != 0; }));
      if (dies) arena_.member_slot(3).dead.store(1);
      if (!dies) arena_.member_slot(3).left_generation.store(g - 1);
      shmem::ring_all(arena_);
    };
    run_ranks(arena_, GetParam(), kSize, body, agent);
  }
}

// Ranks 1 and 3 stay away; rank 2 comes after rank 0 and gives up.
TEST_P(ShmFailure, DeadlineNamesTheOperationAndTheMissingRanks) {
  for (const Operation& operation : operations()) {
    const shmem::Arena arena = make_arena({.slots = kSize, .shards = kSize, .elements = kElements});
    arena.member_slot(3).dead.store(1);
    auto body = [&](const shmem::Arena& mine, int rank) {
      if (rank % 2 == 1) return;
      auto comm = open_comm(mine, 1, rank);
      if (rank == 0) {
        ASSERT_EQ(operation.run(*comm, mine, soon()).code(), Code::kRevoked);
        return;
      }
      ASSERT_TRUE(eventually([&] { return arrivals_in(mine.member_slot(0).channels[0]) == 1; }));
      const base::TimePoint begin = base::SystemClock().now();
      const Status status = operation.run(*comm, mine, begin + 50ms);
      ASSERT_GE(base::SystemClock().now() - begin, 50ms);
      ASSERT_EQ(status.code(), Code::kDeadlineExceeded);
      ASSERT_THAT(status.message(),
                  ::testing::StartsWith(std::string(operation.name) +
                                        ": rank 1, 3 (dead) of 4 did not arrive after "));
      ASSERT_THAT(status.message(), ::testing::EndsWith(" s in generation 1"));
      ASSERT_EQ(operation.run(*comm, mine, soon()).message(), status.message());
      revoke_all(mine, 1);
    };
    run_ranks(arena, GetParam(), kSize, body);
  }
}

// Equal in all ranks, but in rank 1 as a part of another operation.
TEST_P(ShmFailure, PartsOfDifferentOperationsAreAMismatch) {
  std::vector<std::byte> outer(104);
  const auto signature_with = [&](std::size_t bytes) {
    const auto data = std::span(outer).first(bytes);
    return signature_of(collective::Operation::allreduce(data, data, Dtype::kFloat32), 2 * kSize);
  };
  auto body = [&](const shmem::Arena& arena, int rank) {
    auto comm =
        shm::open_shm(arena, make_world(1, kSize), {0, static_cast<proto::SlotIndex>(rank)});
    ASSERT_TRUE(comm.ok());
    std::vector<std::byte> in(4000);
    std::vector<std::byte> out(in.size() * kSize);
    const auto gather = collective::Operation::allgather(in, out);
    auto agreed = (*comm)->start_part(signature_with(100), gather, soon());
    ASSERT_TRUE(agreed.ok() && agreed->wait().ok());
    EXPECT_FALSE((*comm)->mismatch().has_value());
    auto request = (*comm)->start_part(signature_with(rank == 1 ? 104 : 100), gather, soon());
    ASSERT_TRUE(request.ok());
    const Status status = request->wait();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), ::testing::HasSubstr("in allreduce of 104 bytes (float32, sum)"));
    EXPECT_THAT(status.message(), ::testing::HasSubstr("in allreduce of 100 bytes (float32, sum)"));
    ASSERT_TRUE((*comm)->mismatch().has_value());
    const auto [other, signature] = *(*comm)->mismatch();
    EXPECT_EQ(other == 1, rank != 1);
    EXPECT_EQ(signature, signature_with(rank == 1 ? 100 : 104));
  };
  run_ranks(arena_, GetParam(), kSize, body);
}

TEST_P(ShmFailure, WrongArgumentsAreRefusedByEveryRank) {
  auto comm = open_comm(arena_, 1, 0);
  std::vector<std::byte> six(6);
  std::vector<std::byte> eight(8);
  EXPECT_EQ(comm->allreduce(six, six, Dtype::kFloat32, soon()).message(),
            "allreduce: 6 bytes are not whole elements of 4 bytes");
  EXPECT_EQ(comm->allreduce(six, eight, Dtype::kFloat32, soon()).code(), Code::kInvalidArgument);
  EXPECT_EQ(comm->broadcast(six, 4, soon()).message(), "broadcast: root 4 of 4 ranks");
  EXPECT_EQ(comm->broadcast(six, -1, soon()).code(), Code::kInvalidArgument);
  const Partial partial{{0, 1}, six};
  EXPECT_EQ(comm->tree_reducer().reduce({&partial, 1}, 1, eight, Dtype::kInt64, soon()).message(),
            "tree_reduce: partial [0,1) has 6 bytes, the result 8");
  const Partial half{{0, 1}, eight};
  EXPECT_EQ(comm->tree_reducer().reduce({&half, 1}, 2, eight, Dtype::kInt64, soon()).code(),
            Code::kInvalidArgument);
}

TEST(ShmFactory, RefusesUnusableOptions) {
  const shmem::Arena arena = make_arena({.slots = 2});
  proto::World world = make_world(1, 2);
  auto why = [&](proto::SlotId self, const CommunicatorOptions& options = {}) {
    const auto comm = shm::make_shm(arena, world, self, options);
    EXPECT_EQ(comm.code(), Code::kInvalidArgument);
    return comm.status().message();
  };
  CommunicatorOptions options;
  options.ranks = {0};
  EXPECT_EQ(why({0, 1}, options),
            "make_shm: node 0 slot 1 is not among the 1 members of generation 1");
  for (const auto& ranks : {std::vector<int>{1, 0}, {0, 0}, {-1, 0}, {0, 2}}) {
    options.ranks = ranks;
    EXPECT_EQ(why({0, 0}, options),
              "communicator: the ranks must be ascending and of a World of 2 members");
  }
  world.members[1].slot_id.slot = 2;
  EXPECT_EQ(why({0, 0}),
            "make_shm: rank 1 is at node 0 slot 2, not in the arena of node 0 with 2 slots");
  world.members[1].slot_id = {7, 1};
  EXPECT_EQ(why({0, 0}),
            "make_shm: rank 1 is at node 7 slot 1, not in the arena of node 0 with 2 slots");
}

INSTANTIATE_TEST_SUITE_P(As, ShmFailure, ::testing::Values(Ranks::kThreads, Ranks::kProcesses),
                         [](const auto& info) {
                           return info.param == Ranks::kThreads ? "Threads" : "Processes";
                         });

}  // namespace
}  // namespace regroup::collective::testing::shm_failure
