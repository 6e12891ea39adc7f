// Single copies by CMA from other members' memory: that they are used, what happens where the
// kernel refuses, and when a member dies or gives up before it was read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "base/clock.h"
#include "collective/shm/communicator.h"
#include "collective/shm/factory.h"
#include "tests/collective/exchange.h"
#include "tests/collective/harness.h"

namespace regroup::collective::testing::shm_single_copy {
namespace {

using namespace std::chrono_literals;
using base::Code;
using base::Status;

constexpr int kSize = 3;
constexpr Kind kKinds[] = {Kind::kAllgather, Kind::kGather, Kind::kScatter, Kind::kAlltoall,
                           Kind::kBroadcast};
constexpr std::size_t kLarge = 300'001;

std::unique_ptr<shm::ShmCommunicator> open_comm(
    const shmem::Arena& arena, int rank,
    shm::SingleCopyMode single_copy = shm::SingleCopyMode::kAlways) {
  shm::ShmOptions options;
  options.single_copy = single_copy;
  auto comm = shm::open_shm(arena, make_world(1, arena.spec().slots),
                            {0, static_cast<proto::SlotIndex>(rank)}, {}, options);
  EXPECT_TRUE(comm.ok()) << comm.status().to_string();
  return std::move(comm).value();
}

// From now on the kernel refuses this process to read the memory of others.
void refuse_reads() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{std::size(program), program};
  ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
}

struct Setting {
  Ranks kind;
  shm::SingleCopyMode single_copy;
  bool refused;  // for rank 0, after two rounds
};
class ShmSingleCopy : public ::testing::TestWithParam<Setting> {};

// Every operation from every root, with some memory in the arena; every rank changes its memory as
// soon as it is done.
TEST_P(ShmSingleCopy, EveryOperationHasItsResult) {
  const Setting& setting = GetParam();
  constexpr std::uint64_t kElements = (kSize * kLarge + 200) / 4;
  const shmem::Arena arena = make_arena({.slots = kSize, .elements = kElements});
  run_ranks(arena, setting.kind, kSize, [&](const shmem::Arena& mine, int rank) {
    const auto comm = open_comm(mine, rank, setting.single_copy);
    for (std::uint64_t round = 0; round < 12; ++round) {
      const bool all_can = !setting.refused || round < 2;
      if (setting.refused && round == 2 && rank == 0) refuse_reads();
      const Shape shape{
          kKinds[round % 5], Dtype::kUint8, Op::kSum, static_cast<int>(round % kSize), kLarge,
          round % 4 == 3};
      Room room;
      if (round % 6 == 5 && rank == 1) room.in = mine.buffer(1, 0);
      Exchange exchange(shape, rank, kSize, make_inputs(shape, kSize, round), room);
      const std::uint64_t before = comm->single_copies();
      const Status status = comm->run(exchange.operation(), soon());
      ASSERT_TRUE(status.ok()) << round << ": " << status.to_string();
      ASSERT_EQ(exchange.verify(), "") << round;
      exchange.spoil_input();
      exchange.spoil_output();
      const bool in_place = shape.kind == Kind::kAlltoall && shape.in_place;
      const bool expected =
          setting.single_copy == shm::SingleCopyMode::kAlways && all_can && !in_place;
      EXPECT_EQ(comm->single_copies() - before, expected ? 1U : 0U) << round;
    }
  });
}

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const shm::SingleCopyMode single_copy :
       {shm::SingleCopyMode::kAlways, shm::SingleCopyMode::kNever}) {
    all.push_back({Ranks::kThreads, single_copy, false});
#ifndef __SANITIZE_THREAD__  // sees no race between processes and makes them slow
    all.push_back({Ranks::kProcesses, single_copy, false});
#endif
  }
#ifndef __SANITIZE_THREAD__
  all.push_back({Ranks::kProcesses, shm::SingleCopyMode::kAlways, true});
#endif
  return all;
}

INSTANTIATE_TEST_SUITE_P(
    Settings, ShmSingleCopy, ::testing::ValuesIn(settings()), [](const auto& info) {
      return std::string(info.param.kind == Ranks::kThreads ? "Threads" : "Processes") +
             (info.param.single_copy == shm::SingleCopyMode::kAlways ? "SingleCopy" : "Bounced") +
             (info.param.refused ? "Refused" : "");
    });

// Synchronises the communicators, so that the next operation exposes memory at its first point.
void synchronise(Communicator& comm) {
  const Status status =
      run_checked(comm, {Kind::kAllgather, Dtype::kUint8, Op::kSum, 0, 4000}, 1, soon());
  ASSERT_TRUE(status.ok()) << status.to_string();
}

// Rank 1 exposes its memory and dies before a peer has read it. The others see it as any dead peer:
// a deadline names it, a revoke ends the wait.
class ShmSingleCopyDeath : public ::testing::TestWithParam<bool> {
 protected:
  void await_and_revoke() {
    shmem::MemberSlot& victim = arena_.member_slot(1);
    ASSERT_TRUE(eventually([&] { return victim.step.load() != 0; }));
    siginfo_t info{};
    ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(victim.step.load()), &info, WEXITED | WNOWAIT), 0);
    const std::uint64_t announced = arrivals_in(victim.channels[0]);
    victim.dead.store(1);
    if (!GetParam()) return;
    const auto voted = [&](proto::SlotIndex slot) {
      return arrivals_in(arena_.member_slot(slot).channels[0]) > announced;
    };
    ASSERT_TRUE(eventually([&] { return voted(0) && voted(2); }));
    revoke_all(arena_, 1);
  }

  const shmem::Arena arena_ = make_arena({.slots = kSize});
};

TEST_P(ShmSingleCopyDeath, AMemberThatDiedBeforeItWasReadDidNotArrive) {
  const bool revoked = GetParam();
  const auto body = [&](const shmem::Arena& arena, int rank) {
    const auto comm = open_comm(arena, rank);
    synchronise(*comm);
    Bytes data(kLarge);
    const auto broadcast = Operation::broadcast(data, 1);
    if (rank == 1) {
      ASSERT_TRUE(comm->start(broadcast, soon()).ok());
      arena.member_slot(1).step.store(static_cast<std::uint64_t>(::getpid()));
      ::raise(SIGKILL);
    }
    ASSERT_TRUE(eventually([&] { return arena.member_slot(1).dead.load() != 0; }));
    const Status status = comm->run(broadcast, revoked ? soon() : base::SystemClock().now() + 1s);
    EXPECT_EQ(status.code(), revoked ? Code::kRevoked : Code::kDeadlineExceeded)
        << status.to_string();
    const char* why = revoked ? "generation 1 is over" : "1 (dead) of 3 did not arrive";
    EXPECT_THAT(status.message(), ::testing::HasSubstr(why));
    EXPECT_EQ(comm->single_copies(), 0U);
  };
  run_ranks(
      arena_, Ranks::kProcesses, kSize, body, [&] { await_and_revoke(); }, 1);
}

#ifndef __SANITIZE_THREAD__
INSTANTIATE_TEST_SUITE_P(Ends, ShmSingleCopyDeath, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Revoked" : "Late"; });
#else
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ShmSingleCopyDeath);
#endif

// Rank 1 has read and reported it, then its deadline passes and its caller changes its memory,
// which rank 0 has not read yet.
TEST(ShmSingleCopyGiveUp, DataOfAMemberThatGaveUpIsNotUsed) {
  const shmem::Arena arena = make_arena({.slots = 2});
  std::unique_ptr<shm::ShmCommunicator> comms[] = {open_comm(arena, 0), open_comm(arena, 1)};
  run_all(Ranks::kThreads, 2, [&](int rank) { synchronise(*comms[rank]); });
  Bytes in[] = {Bytes(kLarge, std::byte{10}), Bytes(kLarge, std::byte{11})};
  Bytes out[] = {Bytes(2 * kLarge), Bytes(2 * kLarge)};
  auto slow = comms[0]->start(Operation::allgather(in[0], out[0]), soon());
  ASSERT_TRUE(slow.ok());
  const auto deadline = base::SystemClock().now() + 1s;  // it has to read by then
  auto late = comms[1]->start(Operation::allgather(in[1], out[1]), deadline);
  ASSERT_TRUE(late.ok());
  EXPECT_EQ(late->wait().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(std::ranges::count(out[1], std::byte{10}), static_cast<std::ptrdiff_t>(kLarge))
      << "had not read";
  std::ranges::fill(in[1], std::byte{12});
  for (int i = 0; i < 100; ++i) {
    const auto tested = slow->test();
    ASSERT_TRUE(tested.ok() && !*tested);
  }
  EXPECT_EQ(comms[0]->single_copies(), 0U);
  revoke_all(arena, 1);
  EXPECT_EQ(slow->wait().code(), Code::kRevoked);
}

}  // namespace
}  // namespace regroup::collective::testing::shm_single_copy
