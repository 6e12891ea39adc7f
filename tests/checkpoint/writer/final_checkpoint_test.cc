// Which checkpoints complete before a deadline, by bytes, bandwidth and time.
#include "checkpoint/writer/final_checkpoint.h"

#include <gtest/gtest.h>

namespace regroup::writer {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using What = FinalCheckpointDecision::What;

constexpr std::uint64_t kGiB = 1 << 30;

TEST(FinalCheckpoint, IsFinishedPersistedOrKept) {
  const struct {
    std::optional<proto::Step> writing;
    base::Duration since;
    double gib_per_second;
    base::Duration left;
    What what;
  } rows[] = {
      {7, seconds(0), 1.0, seconds(2), What::kFinish},
      {7, seconds(0), 1.0, seconds(1), What::kKeep},  // 1.2 s with the margin
      {7, seconds(11), 0.1, seconds(2), What::kFinish},
      {7, seconds(1), 0.1, seconds(2), What::kKeep},
      {7, seconds(60), 0.1, milliseconds(10), What::kFinish},  // overdue: it may end any moment
      {7, seconds(0), 0.0, seconds(1), What::kFinish},
      {7, seconds(60), 1.0, seconds(0), What::kKeep},
      {{}, {}, 1.0, seconds(2), What::kPersist},
      {{}, {}, 1.0, seconds(1), What::kKeep},
      {{}, {}, 0.0, seconds(1), What::kPersist},
      {{}, {}, 0.0, seconds(-1), What::kKeep},
  };
  for (const auto& row : rows) {
    const auto choice = decide_final_checkpoint(
        {row.writing, row.since, kGiB, row.gib_per_second * kGiB, row.left});
    EXPECT_EQ(choice.what, row.what) << choice.why;
  }
}

TEST(FinalCheckpoint, CountsTheTimeOfTheCopyIfOnlyItOutlivesTheHost) {
  const struct {
    std::optional<proto::Step> writing;
    bool copied;
    double copied_gib_per_second;
    std::optional<base::Duration> copying;
    base::Duration left;
    What what;
  } rows[] = {
      {{}, false, 0.1, {}, seconds(2), What::kPersist},  // this host's own directory is enough
      {{}, true, 1.0, {}, seconds(2), What::kKeep},  // 1.2 s to be written and 1.2 s to be copied
      {{}, true, 1.0, {}, seconds(3), What::kPersist},
      {{}, true, 0.0, {}, seconds(2), What::kPersist},  // not measured: tried
      {7, true, 1.0, {}, seconds(2), What::kKeep},
      {7, true, 1.0, {}, seconds(3), What::kFinish},
      {7, true, 0.1, seconds(1), seconds(22),
       What::kKeep},  // the one before it needs 11 s more, then 12 s
      {7, true, 0.1, seconds(1), seconds(24), What::kFinish},
      {7, true, 0.1, seconds(60), seconds(14), What::kFinish},
  };
  for (const auto& row : rows) {
    Remaining remaining{row.writing, {}, kGiB, 1.0 * kGiB, row.left};
    remaining.copied = row.copied, remaining.copying = row.copying;
    remaining.copy_bandwidth = row.copied_gib_per_second * kGiB;
    const auto choice = decide_final_checkpoint(remaining);
    EXPECT_EQ(choice.what, row.what) << choice.why;
  }
  Remaining remaining{7, seconds(0), kGiB, 1.0 * kGiB, seconds(20)};
  remaining.copied = true, remaining.copy_bandwidth = 0.1 * kGiB;
  EXPECT_EQ(decide_final_checkpoint(remaining).why,
            "the checkpoint of step 7 that is being written (1024 MiB at 1024 MiB/s) needs 13.2 s "
            "more, 12.0 "
            "s of them to copy it at 102 MiB/s, 20.0 s are left");
}

TEST(FinalCheckpoint, ExplainsTheDecision) {
  EXPECT_EQ(decide_final_checkpoint({7, seconds(2), kGiB, 0.1 * kGiB, seconds(5)}).why,
            "the checkpoint of step 7 that is being written (1024 MiB at 102 MiB/s) needs 10.0 s "
            "more, 5.0 s are "
            "left");
  EXPECT_EQ(decide_final_checkpoint({{}, {}, kGiB, 0, seconds(5)}).why,
            "a final save (1024 MiB) is attempted within 5.0 s: the disk's bandwidth has not been "
            "measured yet");
}

using Phase = shmem::SaveMark::Phase;
using Asked = shmem::SaveRequest::What;

TEST(LastSave, IsRequestedAgainOnlyIfNoMemberWillCopyIt) {
  const struct {
    shmem::SaveMark mark;
    Asked asked;
    bool claimant_lives, late, again;
  } rows[] = {
      {{Phase::kIdle, 5}, Asked::kAtBoundary, true, false, false},  // one is about to leave
      {{Phase::kIdle, 5}, Asked::kAtBoundary, true, true, true},    // none came to a boundary
      {{Phase::kIdle, 9}, Asked::kAtBoundary, true, true, false},   // it is there
      {{Phase::kWanted, 9}, Asked::kAtBoundary, true, true, true},  // of shares that may never come
      {{Phase::kWanted, 9}, Asked::kClaimed, true, true, false},
      {{Phase::kWanted, 9}, Asked::kClaimed, false, false, true},
      {{Phase::kReady, 9}, Asked::kClaimed, false, true, false},
      {{Phase::kTaken, 9}, Asked::kClaimed, false, true, false},
      {{Phase::kTaken, 5}, Asked::kLater, true, true, false},
      {{Phase::kIdle, 5}, Asked::kNow, true, true, false},
      {{Phase::kIdle, 5}, Asked::kNone, true, true, false},
  };
  for (const auto& row : rows) {
    LastSeen seen{.mark = row.mark,
                  .request = {row.asked, 1},
                  .claimant_lives = row.claimant_lives,
                  .newest = 9};
    seen.late = row.late;
    EXPECT_EQ(writer::must_request_again(seen), row.again) << &row - rows;
  }
}

TEST(LastSave, ReportsWhyASaveIsMissing) {
  const struct {
    shmem::SaveMark mark;
    Asked asked;
    proto::Step newest;
    bool wrote;
    const char* told;
    bool all_had_left = false;
  } rows[] = {
      {{Phase::kIdle, 9}, Asked::kClaimed, 9, true, ""},
      {{Phase::kIdle, 9},
       Asked::kAtBoundary,
       9,
       false,
       "no final checkpoint: step 9, the last one, is saved already"},
      {{Phase::kIdle, 0},
       Asked::kAtBoundary,
       0,
       false,
       "no final checkpoint: no member has completed a step"},
      {{Phase::kIdle, 5},
       Asked::kNow,
       9,
       false,
       "the state after step 9 is not saved: no member reached the end of its step, or waited for "
       "others, "
       "within 2.0 s"},
      {{Phase::kWanted, 9},
       Asked::kClaimed,
       9,
       false,
       "the state after step 9 is not saved: member 3 ended while copying it"},
      {{Phase::kIdle, 5},
       Asked::kLater,
       9,
       true,
       "the state after step 9 is not saved: the previous checkpoint was still being written"},
      // The copy of the one that claimed it is on the disk.
      {{Phase::kIdle, 8},
       Asked::kClaimed,
       9,
       true,
       "the state after step 9 is not saved: no member with this state was left"},
      {{Phase::kIdle, 8},
       Asked::kNone,
       9,
       true,
       "the state after step 9 is not saved: no time was left to write it"},
      {{Phase::kIdle, 8},
       Asked::kAtBoundary,
       9,
       true,
       "the state after step 9 is not saved: all members had left when it was requested",
       /*all_had_left=*/true},
  };
  for (const auto& row : rows) {
    LastSeen seen{.mark = row.mark, .request = {row.asked, 1}, .claimant = 3, .newest = row.newest};
    seen.since = seconds(2);
    seen.all_had_left = row.all_had_left;
    EXPECT_EQ(outcome_of_last(seen, row.wrote), row.told);
  }
}

TEST(LastSave, LeavesTheDiskEnoughTime) {
  const base::TimePoint now(seconds(100)), deadline(seconds(120));
  EXPECT_EQ(copied_by(now, deadline, kGiB, 0), now + seconds(15));  // not measured
  EXPECT_EQ(copied_by(now, deadline, kGiB, kGiB / 8.0), now + seconds(12));
  EXPECT_EQ(copied_by(now, deadline, kGiB, kGiB / 100.0), now + seconds(10));
}

}  // namespace
}  // namespace regroup::writer
