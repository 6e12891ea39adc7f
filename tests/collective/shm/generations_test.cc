// Successive and concurrent communicators on one arena: a member killed in the middle of an
// operation, then the survivors in the next generation; sections with a channel and instances of
// their own.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "collective/shm/factory.h"
#include "tests/collective/harness.h"

namespace regroup::collective::testing::shm_generations {
namespace {

using base::Code;
using base::Status;

std::unique_ptr<Communicator> open_comm(const shmem::Arena& arena, const proto::World& world,
                                        int slot, const CommunicatorOptions& options = {}) {
  auto comm = shm::make_shm(arena, world, {0, static_cast<proto::SlotIndex>(slot)}, options);
  EXPECT_TRUE(comm.ok()) << comm.status().to_string();
  return std::move(comm).value();
}

// An allreduce over the members of `comm` whose data depends on `seed`; checked.
Status checked_allreduce(Communicator& comm, std::uint64_t seed, std::size_t elements) {
  std::vector<std::vector<std::byte>> leaves;
  for (int i = 0; i < comm.size(); ++i) {
    leaves.push_back(
        make_leaf(Dtype::kFloat32, elements, seed * 100 + static_cast<std::uint64_t>(i)));
  }
  std::vector<std::byte> out(elements * 4);
  Status status =
      comm.allreduce(leaves[static_cast<std::size_t>(comm.rank())], out, Dtype::kFloat32, soon());
  if (status.ok()) {
    EXPECT_EQ(out,
              reference_sum(Dtype::kFloat32, leaves, {0, static_cast<std::uint32_t>(comm.size())}));
  }
  return status;
}

// A member of slot 0..3. It reports to the agent by one word of its member slot: its process, and
// whether it is in an operation.
constexpr std::uint64_t kInside = 1ULL << 32;

Status run_until_revoked(Communicator& comm, shmem::MemberSlot& member_slot) {
  const auto pid = static_cast<std::uint64_t>(::getpid());
  std::vector<std::byte> data(80'000 * 4);
  Status status;
  for (std::uint64_t k = 0; status.ok(); ++k) {
    const auto part = std::span(data).first((1 + k * 7919 % 80'000) * 4);
    member_slot.step.store(pid | kInside);
    status = comm.allreduce(part, part, Dtype::kInt32, soon());
    member_slot.step.store(pid);
  }
  return status;
}

// Members 0..3; the agent kills one somewhere in generation 1, reaps it and revokes; the survivors
// leave, join generation 2 without it and go on with the same arena. True if it died in an
// operation.
bool kill_one(std::uint64_t seed) {
  std::mt19937_64 common(seed);
  const shmem::Arena arena = make_arena({.slots = 4});
  const auto victim = static_cast<proto::SlotIndex>(common() % 4);
  const std::uint64_t moment = 1 + common() % 40;  // in synchronisation points
  const proto::World first = make_world(1, 4);
  proto::World second = make_world(2, 4);
  second.members.erase(second.members.begin() + victim);

  auto body = [&](const shmem::Arena& mine, int slot) {
    shmem::MemberSlot& member_slot = mine.member_slot(static_cast<proto::SlotIndex>(slot));
    auto comm = open_comm(mine, first, slot);
    const Status status = run_until_revoked(*comm, member_slot);
    ASSERT_EQ(status.code(), Code::kRevoked) << status.to_string();
    member_slot.left_generation.store(1);
    shmem::ring_all(mine);
    auto next = open_comm(mine, second, slot);
    for (std::uint64_t k = 0; k < 10; ++k) {
      const Status again = checked_allreduce(*next, 1000 + k, 1 + k * 7919 % 80'000);
      ASSERT_TRUE(again.ok()) << again.to_string();
    }
  };
  shmem::MemberSlot& member_slot = arena.member_slot(victim);
  auto agent = [&] {
    EXPECT_TRUE(eventually([&] { return arrivals_in(member_slot.channels[0]) >= moment; }));
    const auto pid = static_cast<pid_t>(member_slot.step.load() & ~kInside);
    ASSERT_EQ(::kill(pid, SIGKILL), 0);
    siginfo_t info{};
    ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
    ASSERT_EQ(info.si_status, SIGKILL);
    member_slot.dead.store(1);
    revoke_all(arena, 1);
  };
  run_ranks(arena, Ranks::kProcesses, 4, body, agent, victim);
  return (member_slot.step.load() & kInside) != 0;
}

TEST(ShmGenerations, SurvivorsContinueAfterAKill) {
  int inside = 0;
  for (std::uint64_t seed = 1; seed <= 8 || (inside < 4 && seed <= 40); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    inside += kill_one(seed) ? 1 : 0;
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GE(inside, 4);
}

class ShmRegions : public ::testing::TestWithParam<Ranks> {};

// Steps on one channel with everybody; between them sections of a subset (a newcomer is no party to
// them), some with one operation, some with none, each a new communicator with a later instance.
TEST_P(ShmRegions, RunsSubsetsAndInstancesBetweenSteps) {
  constexpr int kSize = 5;
  const shmem::Arena arena = make_arena({.slots = kSize});
  const proto::World world = make_world(4, kSize);
  leave_all(arena, 3);
  run_ranks(arena, GetParam(), kSize, [&](const shmem::Arena& mine, int slot) {
    std::mt19937_64 random(static_cast<std::uint64_t>(slot));
    std::mt19937_64 common(11);
    auto steps = open_comm(mine, world, slot);
    for (proto::Step step = 1; step <= 40; ++step) {
      ASSERT_TRUE(steps->barrier(soon()).ok());
      const std::uint64_t members = common() % 31 + 1;  // a bit for each rank
      for (unsigned section = 1; section <= common() % 4; ++section) {
        CommunicatorOptions options{
            shmem::ChannelKind::kSections, proto::Position::of(step, section), {}};
        for (int i = 0; i < kSize; ++i) {
          if (members >> i & 1) options.ranks.push_back(i);
        }
        const std::uint64_t operations = common() % 3;
        const std::size_t elements = common() % 20'000;
        std::vector<std::byte> data = make_leaf(Dtype::kInt32, elements, step);
        const std::vector<std::byte> want = data;
        if (!(members >> slot & 1)) continue;
        auto comm = open_comm(mine, world, slot, options);
        ASSERT_EQ(comm->size(), static_cast<int>(options.ranks.size()));
        for (std::uint64_t k = 0; k < operations; ++k) {
          dawdle(random);
          ASSERT_TRUE(checked_allreduce(*comm, step * 10 + k, elements).ok());
          if (comm->rank() != 0) std::ranges::fill(data, std::byte{});
          ASSERT_TRUE(comm->broadcast(data, 0, soon()).ok());
          ASSERT_EQ(data, want);
        }
      }
    }
  });
}

// A section that another rank has already left counts as passed, and an instance cannot be opened
// twice.
TEST_P(ShmRegions, ALaterInstanceCountsAsArrivedAndNoneOpensTwice) {
  const shmem::Arena arena = make_arena({.slots = 2});
  const proto::World world = make_world(1, 2);
  run_ranks(arena, GetParam(), 2, [&](const shmem::Arena& mine, int slot) {
    auto section = [&](unsigned k) {
      return open_comm(mine, world, slot,
                       {shmem::ChannelKind::kSections, proto::Position::of(1, k), {}});
    };
    ASSERT_TRUE(slot != 0 || section(1)->barrier(soon()).ok());
    ASSERT_TRUE(section(2)->barrier(soon()).ok());
    const Status again = section(2)->barrier(soon());
    ASSERT_EQ(again.code(), Code::kInvalidArgument);
    ASSERT_EQ(again.message(),
              "communicator: instance 258 of generation 1 was opened before, or a later one was");
  });
}

INSTANTIATE_TEST_SUITE_P(As, ShmRegions, ::testing::Values(Ranks::kThreads, Ranks::kProcesses),
                         [](const auto& info) {
                           return info.param == Ranks::kThreads ? "Threads" : "Processes";
                         });

}  // namespace
}  // namespace regroup::collective::testing::shm_generations
