// State from donors to newcomers when the generation ends in the middle.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <functional>
#include <string>
#include <thread>

#include "elastic/state_donation.h"
#include "tests/elastic/members.h"

namespace regroup::elastic {
namespace {

using base::Code;
using collective::testing::eventually;
using collective::testing::revoke_all;
using proto::SlotIndex;
using shmem::kSnapshotChunk;
using testing::Agent;
using testing::await;
using testing::Bytes;
using testing::follow;
using testing::live;
using testing::random_bytes;
using testing::start;
using testing::start_donor;

// A newcomer of a generation that is over, then of the next.
std::jthread start_twice(
    Agent& agent, SlotIndex slot, Bytes& state, int loads_before,
    const std::function<void()>& between = [] {}) {
  return start(agent, slot, [&state, loads_before, between](Participant& self) {
    ASSERT_EQ(adopt_state(self, state).code(), Code::kRevoked);
    EXPECT_EQ(self.own_slot().proved.load(), 0U);
    EXPECT_EQ(self.own_slot().using_snapshot.load(), 0U);
    EXPECT_EQ(state.loads, loads_before);
    between();
    follow(self, 2);
    EXPECT_TRUE(adopt_state(self, state).ok());
    EXPECT_EQ(self.own_slot().proved.load(), 2U);
  });
}

// One donor is done, the other is not, when the generation ends; `between` looks at the newcomer
// then.
void end_in_the_middle(
    Agent& agent, Bytes& mine, const std::function<void()>& between = [] {}) {
  Bytes first(random_bytes(4 * kSnapshotChunk, 1)), second = first;
  std::atomic<bool> saving{false}, revoked{false};
  second.on_save = [&] {
    saving = true;
    EXPECT_TRUE(eventually([&] { return revoked.load(); }));
  };
  std::jthread donor = start_donor(agent, 0, first, true);
  std::jthread slow = start(agent, 1, [&](Participant& self) {
    ASSERT_EQ(donate_state(self, second).code(), Code::kRevoked);
    EXPECT_EQ(self.own_slot().donated.load(), 0U);
    follow(self, 2);
    EXPECT_TRUE(donate_state(self, second).ok());
  });
  std::jthread newcomer = start_twice(agent, 2, mine, 0, between);
  agent.welcome_all();
  agent.announce(1, {0, 1}, {2});
  await(agent, [&] {
    return saving.load() && agent.member_slot(0).donated.load() == 1 &&
           agent.member_slot(2).using_snapshot.load() == 1 && agent.sleeps(2);
  });
  revoke_all(agent.arena(), 1);
  revoked = true;
  agent.announce(2, {0, 1}, {2});
  donor.join(), slow.join(), newcomer.join();
  EXPECT_TRUE(mine.bytes() == first.bytes());
}

// True: a newcomer's state is copied to its place while it arrives.
class StateDonationRevokeTest : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(State, StateDonationRevokeTest, ::testing::Bool(), [](const auto& which) {
  return std::string(which.param ? "InPlace" : "AsAWhole");
});

TEST_P(StateDonationRevokeTest, EndsDonorsAndNewcomersInTheMiddle) {
  Agent agent(3, 4 * kSnapshotChunk);
  Bytes mine;
  mine.in_place = GetParam();
  end_in_the_middle(agent, mine);
}

// Then every member counts as one that has the state, this newcomer too if the others die.
TEST(StateDonationRevoke, BeforeTheFirstStepLeavesNoMixtureBehind) {
  Agent agent(3, 4 * kSnapshotChunk);
  agent.resume = 0;
  const auto initial = random_bytes(4 * kSnapshotChunk, 2);
  Bytes mine(initial);
  mine.in_place = true;
  end_in_the_middle(agent, mine, [&] { EXPECT_TRUE(mine.bytes() == initial); });
}

// Runs one donor and one newcomer, whose hook revokes generation 1 during the copy.
void revoked_by_the_newcomer(
    Agent& agent, Bytes& mine, int loads_before, const std::function<void()>& between = [] {}) {
  Bytes theirs(random_bytes(agent.arena().spec().snapshot_bytes, 1));
  std::jthread donor = start_donor(agent, 0, theirs, true);
  std::jthread newcomer = start_twice(agent, 1, mine, loads_before, between);
  agent.welcome_all();
  agent.announce(1, {0}, {1});
  await(agent, [&] { return agent.member_slot(1).revoked_up_to.load() == 1; });
  agent.announce(2, {0}, {1});
  donor.join(), newcomer.join();
  EXPECT_TRUE(mine.bytes() == theirs.bytes());
}

TEST(StateDonationRevoke, EndsACopyBetweenTwoChunks) {
  const std::size_t size = 3 * kSnapshotChunk;
  Agent agent(2, size);
  const auto initial = random_bytes(size, 2);
  Bytes mine(initial);
  mine.in_place = true;
  mine.on_memory = [&] { revoke_all(agent.arena(), 1), mine.on_memory = nullptr; };
  revoked_by_the_newcomer(agent, mine, 0, [&] {
    const auto rest = static_cast<std::ptrdiff_t>(kSnapshotChunk);
    EXPECT_TRUE(std::equal(initial.begin() + rest, initial.end(), mine.bytes().begin() + rest));
  });
}

TEST(StateDonationRevoke, AStateThatWasLoadedMeanwhileDoesNotCount) {
  Agent agent(2, kSnapshotChunk);
  Bytes mine;
  mine.on_load = [&](auto&) { revoke_all(agent.arena(), 1), mine.on_load = nullptr; };
  revoked_by_the_newcomer(agent, mine, 1);
}

// The newcomer of generation 1 still reads the snapshot when that of 2 is to be written.
TEST(StateDonationRevoke, DonorsWaitForReadersOfAnOlderGeneration) {
  Agent agent(2, kSnapshotChunk);
  Bytes theirs(random_bytes(kSnapshotChunk, 1)), mine;
  mine.on_load = [&](auto&) {
    mine.on_load = nullptr;
    revoke_all(agent.arena(), 1);
    agent.announce(2, {0}, {1});
    const auto in_second = [&] {
      return shmem::load_state<shmem::RealPolicy>(agent.member_slot(0).state).generation == 2;
    };
    EXPECT_TRUE(eventually([&] {
      return agent.member_slot(0).donated.load() == 2 || (in_second() && agent.sleeps(0));
    }));
    EXPECT_EQ(agent.member_slot(0).donated.load(), 1U);
  };
  std::jthread donor = start_donor(agent, 0, theirs, true);
  std::jthread newcomer = start_twice(agent, 1, mine, 1);
  agent.welcome_all();
  agent.announce(1, {0}, {1});
}

// Killed before its share is written: the next generation does without it.
TEST_P(StateDonationRevokeTest, ADonorThatDiesIsReplacedByTheOthers) {
  const std::size_t size = 5 * kSnapshotChunk;
  Agent agent(3, size);
  Bytes theirs(random_bytes(size, 1)), mine;
  mine.in_place = GetParam();
  const pid_t victim = ::fork();
  if (victim == 0) {
    theirs.on_save = [] { ::raise(SIGKILL); };
    live(agent.path(), 1, [&](Participant& self) { (void)donate_state(self, theirs); });
    ::_exit(1);
  }
  std::jthread donor = start_donor(agent, 0, theirs, true);
  std::jthread newcomer = start_twice(agent, 2, mine, 0);
  agent.welcome_all();
  agent.announce(1, {0, 1}, {2});
  int status = 0;
  EXPECT_EQ(::waitpid(victim, &status, 0), victim);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  await(agent, [&] {
    return agent.member_slot(0).donated.load() == 1 &&
           agent.member_slot(2).using_snapshot.load() == 1 && agent.sleeps(2);
  });
  agent.member_slot(1).dead = 1;
  revoke_all(agent.arena(), 1);
  agent.announce(2, {0}, {2});
  donor.join(), newcomer.join();
  EXPECT_EQ(agent.member_slot(1).donated.load(), 0U);
  EXPECT_TRUE(mine.bytes() == theirs.bytes());
}

}  // namespace
}  // namespace regroup::elastic
