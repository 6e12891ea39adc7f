// The last save: which member copies the state when the agent requests it, whatever the members
// are doing.
#include "elastic/final_save.h"
#include "base/clock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <functional>
#include <set>
#include <thread>
#include <vector>

#include "shmem/save_mark.h"
#include "tests/elastic/members.h"

namespace regroup::elastic {
namespace {

using collective::testing::eventually;
using proto::SlotIndex;
using shmem::SaveMark;
using shmem::SaveRequest;
using testing::Agent;
using testing::Bytes;
using testing::pattern;
using testing::start;
using Phase = shmem::SaveMark::Phase;
using What = shmem::SaveRequest::What;

constexpr std::size_t kBytes = 50'000;
const Checkpointing kSaving{1, "", "a model", "a fingerprint"};

// Members of one host, of which each stands after step `applied` of its own.
class FinalSaveTest : public ::testing::Test {
 protected:
  FinalSaveTest() : agent_(2, kBytes, kBytes + (1 << 20)) {
    for (SlotIndex slot = 0; slot < 2; ++slot) states_.emplace_back(pattern(kBytes, slot + 1));
  }
  // Both stand after step 7; the second is let go, and gone_ once it may. The first stays until
  // then.
  void start_and_let_second_go() {
    start_both([this](Participant& self, State& state) {
      FinalSave save;
      if (self.slot_id().slot == 1) {
        EXPECT_TRUE(save.settle(self, state, 7, kSaving, nullptr).ok());
        gone_ = true;
      }
      EXPECT_TRUE(eventually([this] { return gone_.load(); }));
    });
  }
  void start_both(const std::function<void(Participant&, State&)>& body) {
    for (const SlotIndex slot : {0, 1})
      threads_.push_back(
          start(agent_, slot, [&, slot, body](Participant& self) { body(self, states_[slot]); }));
    agent_.welcome_all();
    agent_.announce(1, {0, 1}, {});
  }
  void ask(What what, base::Duration within = std::chrono::seconds(30)) {
    shmem::SaveHeader& header = shmem::save_header(agent_.arena().save_area());
    const auto until = base::SystemClock().now() + within;
    header.until.store(
        std::chrono::duration_cast<std::chrono::nanoseconds>(until.time_since_epoch()).count());
    header.asked.store(SaveRequest{what, ++asks_}.pack());
    shmem::ring_all(agent_.arena());
  }
  SaveMark mark() { return SaveMark::unpack(agent_.arena().save_word().load()); }
  void set_mark(SaveMark mark) {
    agent_.arena().save_word().store(mark.pack());
    shmem::ring_all(agent_.arena());
  }
  void claim_by(SlotIndex slot, SaveMark mark) {
    shmem::SaveHeader& header = shmem::save_header(agent_.arena().save_area());
    if (header.until.load() == 0) ask(What::kAtBoundary);
    header.asked.store(SaveRequest{What::kClaimed, ++asks_, slot}.pack());
    set_mark(mark);
  }
  SaveRequest request() {
    return SaveRequest::unpack(shmem::save_header(agent_.arena().save_area()).asked.load());
  }

  Agent agent_;
  std::deque<Bytes> states_;
  std::uint32_t asks_ = 0;
  std::atomic<bool> gone_ = false;
  std::vector<std::jthread> threads_;
};

TEST_F(FinalSaveTest, TheFirstMemberToLeaveCopiesTheState) {
  ask(What::kAtBoundary);
  std::atomic<int> answered = 0;
  start_both([&](Participant& self, State& state) {
    FinalSave save;
    EXPECT_FALSE(save.wanted(self, 7, kSaving, MemberActivity::kWaiting));
    // It would be asked for ever: answer() brings nothing before the first step.
    EXPECT_FALSE(save.wanted(self, 0, kSaving, MemberActivity::kAtBoundary));
    EXPECT_TRUE(save.answer(self, state, 7, kSaving, nullptr, MemberActivity::kAtBoundary).ok());
    EXPECT_FALSE(save.wanted(self, 7, kSaving, MemberActivity::kAtBoundary));
    ++answered;
    EXPECT_TRUE(eventually([&] { return answered == 2; }));
  });
  threads_.clear();
  EXPECT_EQ(mark(), (SaveMark{Phase::kReady, 7}));
  EXPECT_EQ(request().what, What::kClaimed);
  EXPECT_EQ(shmem::save_header(agent_.arena().save_area()).bell.count.load(), 1U);
}

// When all leave no step follows that would compare the states.
TEST_F(FinalSaveTest, ASaveThatWaitsForAComparisonIsReplacedByTheFirstThatLeaves) {
  Checkpointing compared = kSaving;
  compared.compared = true;
  std::atomic<int> wanted = 0, shared = 0;
  start_both([&](Participant& self, State& state) {
    request_save(self, 6, compared);
    ++wanted;
    EXPECT_TRUE(eventually([&] { return wanted == 2; }));
    EXPECT_TRUE(save_share(self, state, 7, compared).ok());
    ++shared;
    FinalSave save;
    EXPECT_TRUE(eventually([&] { return request().what != What::kNone; }));
    EXPECT_TRUE(save.answer(self, state, 7, compared, nullptr, MemberActivity::kAtBoundary).ok());
  });
  EXPECT_TRUE(eventually([&] { return shared == 2; }));
  EXPECT_EQ(mark(), (SaveMark{Phase::kWanted, 7}));
  ask(What::kAtBoundary);
  threads_.clear();
  EXPECT_EQ(mark(), (SaveMark{Phase::kReady, 7}));
}

TEST_F(FinalSaveTest, AMemberThatWaitsForAWorldBringsItsState) {
  std::atomic<bool> saved = false;
  std::atomic<int> in = 0;
  start_both([&](Participant& self, State& state) {
    ++in;
    if (self.slot_id().slot == 1) return;  // dies
    FinalSave save;
    self.while_waiting(
        [&] { return save.wanted(self, 7, kSaving, MemberActivity::kWaiting); },
        [&] {
          EXPECT_TRUE(save.answer(self, state, 7, kSaving, nullptr, MemberActivity::kWaiting).ok());
          saved = true;
        });
    EXPECT_EQ(self.wait([] { return false; }, "never").code(), base::Code::kRevoked);
    EXPECT_EQ(self.regroup().status().code(), base::Code::kLeft);
  });
  EXPECT_TRUE(eventually([&] { return in == 2; }));
  agent_.member_slot(1).dead.store(1);
  for (const SlotIndex slot : {0, 1}) agent_.member_slot(slot).revoked_up_to.store(1);
  shmem::ring_all(agent_.arena());
  ask(What::kNow);
  EXPECT_TRUE(eventually([&] { return saved.load(); }));
  EXPECT_EQ(mark(), (SaveMark{Phase::kReady, 7}));
  agent_.member_slot(0).leave_request.store(shmem::kNow);
  shmem::ring_all(agent_.arena());
}

TEST_F(FinalSaveTest, SharesThatWillNotComeAreReplaced) {
  // In a generation that is over: the other one died before its share.
  set_mark({Phase::kWanted, 8});
  start_both([&](Participant& self, State& state) {
    if (self.slot_id().slot == 1) return;
    FinalSave save;
    EXPECT_TRUE(
        eventually([&] { return save.wanted(self, 7, kSaving, MemberActivity::kWaiting); }));
    EXPECT_TRUE(save.answer(self, state, 7, kSaving, nullptr, MemberActivity::kWaiting).ok());
  });
  ask(What::kNow);
  threads_.clear();
  EXPECT_EQ(mark(), (SaveMark{Phase::kReady, 7}));
}

// Who is in the newest World may bring a share of that later step at any time.
TEST_F(FinalSaveTest, ALateMemberDoesNotOverwriteSharesOfALaterStep) {
  set_mark({Phase::kWanted, 8});
  std::atomic<int> in = 0;
  start_both([&](Participant& self, State& state) {
    ++in;
    if (self.slot_id().slot == 1) {
      EXPECT_TRUE(eventually([&] { return request().open() && self.revoked(); }));
      return;
    }
    FinalSave save;
    EXPECT_TRUE(eventually(
        [&] { return self.revoked() && save.wanted(self, 7, kSaving, MemberActivity::kWaiting); }));
    EXPECT_TRUE(save.answer(self, state, 7, kSaving, nullptr, MemberActivity::kWaiting).ok());
  });
  EXPECT_TRUE(eventually([&] { return in == 2; }));
  for (const SlotIndex slot : {0, 1}) agent_.member_slot(slot).revoked_up_to.store(1);
  ask(What::kNow);
  threads_.clear();
  EXPECT_EQ(mark(), (SaveMark{Phase::kWanted, 8}));
  EXPECT_TRUE(request().open());
}

TEST_F(FinalSaveTest, WaitsForTheDiskAndThenForTheAgent) {
  set_mark({Phase::kTaken, 5});
  ask(What::kLater);
  std::atomic<int> left = 0;
  start_both([&](Participant& self, State& state) {
    FinalSave save;
    EXPECT_TRUE(save.answer(self, state, 7, kSaving, nullptr, MemberActivity::kAtBoundary).ok());
    ++left;
    EXPECT_TRUE(eventually([&] { return left == 2; }));
  });
  EXPECT_TRUE(eventually([&] { return agent_.sleeps(0) && agent_.sleeps(1); }));
  set_mark({Phase::kIdle, 5});
  EXPECT_EQ(left, 0);
  ask(What::kAtBoundary);
  threads_.clear();
  EXPECT_EQ(mark(), (SaveMark{Phase::kReady, 7}));
}

TEST_F(FinalSaveTest, DoesNotWaitForADiskBeyondTheTimeThatIsLeft) {
  set_mark({Phase::kTaken, 5});
  ask(What::kAtBoundary, std::chrono::milliseconds(50));
  start_both([&](Participant& self, State& state) {
    FinalSave save;
    EXPECT_TRUE(save.answer(self, state, 7, kSaving, nullptr, MemberActivity::kAtBoundary).ok());
  });
  threads_.clear();
  EXPECT_EQ(mark(), (SaveMark{Phase::kTaken, 5}));
}

// It was let go while the one before it, which had left after an older step, was being written.
TEST_F(FinalSaveTest, AMemberThatLeavesAfterAnOlderCopySavesOnRequest) {
  claim_by(0, {Phase::kTaken, 6});
  start_and_let_second_go();
  EXPECT_TRUE(eventually([&] { return agent_.sleeps(1); }));
  set_mark({Phase::kIdle, 6});
  EXPECT_TRUE(eventually([&] { return agent_.sleeps(1); }));
  EXPECT_FALSE(gone_);
  ask(What::kAtBoundary);
  threads_.clear();
  EXPECT_EQ(mark(), (SaveMark{Phase::kReady, 7}));
}

TEST_F(FinalSaveTest, AMemberThatLeavesCompletesTheCopyOfADeadOne) {
  claim_by(0, {Phase::kWanted, 7});
  start_and_let_second_go();
  EXPECT_TRUE(eventually([&] { return agent_.sleeps(1); }));
  EXPECT_FALSE(gone_);
  ask(What::kNow);
  threads_.clear();
  EXPECT_EQ(mark(), (SaveMark{Phase::kReady, 7}));
}

TEST_F(FinalSaveTest, AMemberThatLeavesDoesNotWaitForACompleteSave) {
  const struct {
    SaveMark mark;
    What asked;
    base::Duration within;
  } rows[] = {
      {{Phase::kReady, 7}, What::kClaimed, std::chrono::seconds(30)},
      {{Phase::kTaken, 8}, What::kClaimed, std::chrono::seconds(30)},
      {{Phase::kTaken, 6}, What::kNone, std::chrono::seconds(30)},
      {{Phase::kWanted, 7}, What::kNone, std::chrono::seconds(30)},
      {{Phase::kTaken, 6}, What::kClaimed, std::chrono::milliseconds(20)},  // then no time is left
  };
  std::atomic<int> row = -1, settled = -1;
  start_both([&](Participant& self, State& state) {
    FinalSave save;
    for (int i = 0; i < static_cast<int>(std::size(rows)); ++i) {
      if (self.slot_id().slot == 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
      EXPECT_TRUE(eventually([&] { return row >= i; }));  // the first member may be a row behind
      if (self.slot_id().slot == 1) {
        EXPECT_TRUE(save.settle(self, state, 7, kSaving, nullptr).ok());
        settled = i;
      }
    }
  });
  for (int i = 0; i < static_cast<int>(std::size(rows)); ++i) {
    ask(What::kNone, rows[i].within);
    if (rows[i].asked == What::kClaimed) claim_by(0, rows[i].mark);
    set_mark(rows[i].mark);
    row = i;
    EXPECT_TRUE(eventually([&] { return settled == i; })) << i;
    EXPECT_EQ(mark(), rows[i].mark) << i;
  }
  threads_.clear();  // the first member may still wait for the last rows
}

// Rank 0 has just requested shares of another step: their count overlaps that of the member that
// copies alone.
TEST_F(FinalSaveTest, ACopyThatOverlapsAnotherSaveIsRepeated) {
  ask(What::kAtBoundary);
  std::atomic<int> saves = 0;
  states_[0].on_save = [&] {
    if (++saves > 1) return;
    shmem::save_header(agent_.arena().save_area()).progress.store(shmem::SaveProgress{1, 2}.pack());
  };
  start_both([&](Participant& self, State& state) {
    if (self.slot_id().slot == 1) return;
    FinalSave save;
    EXPECT_TRUE(save.answer(self, state, 7, kSaving, nullptr, MemberActivity::kAtBoundary).ok());
  });
  threads_.clear();
  EXPECT_EQ(saves, 2);
  EXPECT_EQ(mark(), (SaveMark{Phase::kReady, 7}));
}

TEST(DiskTimeout, IsOverWhenNothingHasMovedForAsLongAsTheLimit) {
  const base::TimePoint start{std::chrono::hours(1)};
  DiskTimeout timeout(std::chrono::seconds(30));
  EXPECT_FALSE(timeout.over(start, 5));
  EXPECT_FALSE(timeout.over(start + std::chrono::seconds(29), 5));
  EXPECT_FALSE(timeout.over(start + std::chrono::seconds(29), 6));
  EXPECT_FALSE(timeout.over(start + std::chrono::minutes(10), 7));  // between two looks it moved
  EXPECT_FALSE(timeout.over(start + std::chrono::seconds(629), 7));
  EXPECT_TRUE(timeout.over(start + std::chrono::seconds(630), 7));
}

TEST_F(FinalSaveTest, ASavedStepIsNotSavedAgain) {
  set_mark({Phase::kIdle, 7});
  ask(What::kAtBoundary);
  start_both([&](Participant& self, State& state) {
    FinalSave save;
    EXPECT_TRUE(save.answer(self, state, 7, kSaving, nullptr, MemberActivity::kAtBoundary).ok());
  });
  threads_.clear();
  EXPECT_EQ(mark(), (SaveMark{Phase::kIdle, 7}));
  EXPECT_TRUE(request().open());
}

}  // namespace
}  // namespace regroup::elastic
