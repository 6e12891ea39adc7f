// Sessions in Worlds that the test announces: who is behind a World has a part in none of its steps
// until it has the state of the others. Rules jfetch, behind and learnvote of tests/model.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/crc32c.h"
#include "base/status.h"
#include "proto/canonical.h"
#include "proto/transfer_step.h"
#include "regroup/session.h"
#include "tests/elastic/members.h"

namespace regroup::elastic {
namespace {

using collective::testing::eventually;
using collective::testing::revoke_all;
using proto::SlotIndex;
using proto::Step;
using testing::Agent;
using testing::await;
using testing::kTimeout;

constexpr proto::TransferStep kTransfer{5, 1};
constexpr std::uint32_t kShards = 2;
constexpr SlotIndex kDonor = 0, kLate = 1;

shmem::Arena make_arena() {
  shmem::ArenaSpec spec{.slots = 2, .shards = kShards, .elements = 1};
  spec.buffers_per_slot = proto::canonical_buffers(kShards);
  spec.snapshot_bytes = sizeof(float);
  spec.kept_results = 2;
  auto arena = shmem::Arena::create(spec);
  EXPECT_TRUE(arena.ok()) << arena.status().to_string();
  for (const SlotIndex slot : {kDonor, kLate}) arena->assign_slot(slot, slot);
  return std::move(*arena);
}

// Trains a model of one weight, in which each sum leaves its trace, as far as it may.
class Trainee {
 public:
  Trainee(Agent& agent, SlotIndex slot) : agent_(agent) {
    state_.track("weight", std::span(&weight_, 1));
    ::setenv("REGROUP_AGENT", agent.path().c_str(), 1);
    ::setenv("REGROUP_MEMBER", std::to_string(slot).c_str(), 1);
    thread_ = std::jthread([this] { train(); });
    agent.welcome();  // it has read the environment
  }
  ~Trainee() {
    over_ = true;
    agent_.hang_up();
  }
  Trainee(const Trainee&) = delete;
  Trainee& operator=(const Trainee&) = delete;

  void may_pass(Step step) { allowed_ = step; }
  [[nodiscard]] bool gathered(Step step) const { return gathered_ == step; }
  [[nodiscard]] Step begun() const { return begun_; }    // of next_step()
  [[nodiscard]] Step passed() const { return passed_; }  // applied
  [[nodiscard]] int computed() const { return computed_; }
  [[nodiscard]] float weight() const { return weight_; }  // once it stands still

 private:
  void train() {
    Options options;
    options.elements = 1;
    options.state = &state_;
    options.deadline = kTimeout;
    options.observer = [this](StepEvent event, Step step) {
      if (event == StepEvent::kGathered) gathered_ = step;
    };
    auto session = Session::join(options);
    ASSERT_TRUE(over_ || session.ok()) << session.status().to_string();
    while (!over_) {
      if (!eventually([&] { return over_ || passed_ < allowed_; }) || over_) return;
      const base::Status status = pass_one(**session);
      ASSERT_TRUE(over_ || status.ok()) << status.to_string();
    }
  }
  base::Status pass_one(Session& session) {
    REGROUP_ASSIGN_OR_RETURN(const auto step, session.next_step());
    begun_ = step->step;
    for (;;) {
      REGROUP_ASSIGN_OR_RETURN(const auto shard, session.next_shard());
      if (!shard) break;
      computed_ += 1;
      const auto value = static_cast<float>(10 * step->step + shard->leaf);
      std::memcpy(shard->gradient.data(), &value, sizeof value);
    }
    REGROUP_ASSIGN_OR_RETURN(const auto sum, session.commit());
    float value = 0;
    std::memcpy(&value, sum.data(), sizeof value);
    weight_ = 2 * weight_ + value;
    passed_ = step->step;
    return {};
  }

  Agent& agent_;
  float weight_ = 0;
  TrackedState state_;
  std::atomic<Step> allowed_{0}, begun_{0}, passed_{0}, gathered_{0};
  std::atomic<int> computed_{0};
  std::atomic<bool> over_{false};
  std::jthread thread_;
};

float after(Step steps) {
  float weight = 0;
  for (Step step = 1; step <= steps; ++step)
    weight = 2 * weight + static_cast<float>(20 * step + 1);
  return weight;
}

class SessionWorld : public ::testing::Test {
 protected:
  SessionWorld() {
    agent_.resume = 0;
    agent_.arena().snapshot_at().store(kTransfer.pack());
    agent_.announce(1, {kDonor}, {});
    donor_.may_pass(2);
    await(agent_, [&] { return donor_.passed() == 2; });
    agent_.resume = 2;
  }
  ~SessionWorld() override { ::unsetenv("REGROUP_AGENT"), ::unsetenv("REGROUP_MEMBER"); }

  // It has the state of step 1 from now on.
  void begin_transfer() {
    agent_.member_slot(kLate).transfer.store(kTransfer.pack());
    shmem::ring_all(agent_.arena());
    await(agent_, [&] { return agent_.member_slot(kLate).replayed.load() == kTransfer.pack(); });
  }
  // The result of step 2, which the donor has passed, as the agent of the learner keeps it.
  void keep_result() {
    shmem::Arena& arena = agent_.arena();
    std::ranges::copy(arena.result(2), arena.kept_result(2).begin());
    arena.kept_crcs(2)[0] = base::crc32c(arena.kept_result(2), proto::result_salt(2));
    arena.kept_step(2).store(2);
    shmem::ring_all(arena);
  }
  void spoil_result() { std::ranges::fill(agent_.arena().result(2), std::byte{0x3f}); }
  // Both may go on behind World 2.
  void go_on() {
    donor_.may_pass(3);
    late_.may_pass(3);
  }
  void expect_both_passed() {
    await(agent_, [&] { return donor_.passed() == 3 && late_.passed() == 3; });
    EXPECT_EQ(donor_.weight(), after(3));
    EXPECT_EQ(late_.weight(), after(3));
    EXPECT_EQ(agent_.member_slot(kLate).proved.load(), 2U);
  }
  // Every member that can proceed has done so.
  void await_standstill(Step donor_gathered) {
    await(agent_, [&] {
      return donor_.begun() == 3 && donor_.gathered(donor_gathered) && agent_.sleeps(kDonor) &&
             agent_.sleeps(kLate);
    });
  }

  Agent agent_{make_arena()};
  Trainee donor_{agent_, kDonor}, late_{agent_, kLate};
};

TEST_F(SessionWorld, ALearnerBehindItsWorldComputesNothing) {
  begin_transfer();
  revoke_all(agent_.arena(), 1);
  agent_.announce(2, {kDonor}, {}, {kLate}, {kDonor, kLate});
  go_on();
  await_standstill(2);  // the leaf of the learner is missing
  ASSERT_FALSE(HasFailure());
  EXPECT_EQ(late_.begun(), 0U);
  EXPECT_EQ(late_.computed(), 0);
  keep_result();
  expect_both_passed();
  EXPECT_EQ(late_.computed(), 1);  // its leaf of step 3, and nothing of step 2
}

TEST_F(SessionWorld, TheOthersWaitForTheVoteOfALearnerThatIsBehind) {
  begin_transfer();
  revoke_all(agent_.arena(), 1);
  agent_.announce(2, {kDonor}, {}, {kLate}, {kDonor});
  go_on();
  await_standstill(3);  // nothing is missing but its vote
  ASSERT_FALSE(HasFailure());
  EXPECT_EQ(donor_.passed(), 2U);
  EXPECT_EQ(shmem::load_state<shmem::RealPolicy>(agent_.member_slot(kDonor).state).phase,
            proto::Phase::kOpen);
  EXPECT_EQ(shmem::load_state<shmem::RealPolicy>(agent_.member_slot(kLate).state).phase,
            proto::Phase::kCommitted);
  EXPECT_EQ(agent_.member_slot(kLate).proved.load(), 0U);
  keep_result();
  expect_both_passed();
  EXPECT_EQ(late_.computed(), 0);
}

// What lies where its host has no result is not what it goes on with ...
TEST_F(SessionWorld, AJoinerBehindItsWorldCopiesTheState) {
  revoke_all(agent_.arena(), 1);
  spoil_result();
  agent_.announce(2, {kDonor}, {kLate});
  go_on();
  expect_both_passed();
}

// ... nor is what it had learned before.
TEST_F(SessionWorld, ALearnerWithoutTheNextResultCopiesTheState) {
  begin_transfer();
  revoke_all(agent_.arena(), 1);
  spoil_result();
  agent_.announce(2, {kDonor}, {kLate});
  go_on();
  expect_both_passed();
}

}  // namespace
}  // namespace regroup::elastic
