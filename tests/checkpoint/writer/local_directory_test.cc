// The stages of a local checkpoint directory, and the process that causes them.
#include "checkpoint/writer/local_directory.h"

#include <gtest/gtest.h>

#include "tests/checkpoint/writer/persist_script.h"

namespace regroup::writer {
namespace {

using Stage = DirectoryStage;
using Event = DirectoryEvent;

constexpr Stage kStages[] = {Stage::kOpen,         Stage::kLocking,   Stage::kLate,
                             Stage::kHeld,         Stage::kReleasing, Stage::kUnusable,
                             Stage::kLateUnusable, Stage::kGivenUp};

TEST(DirectoryStages, FollowTheLock) {
  struct Row {
    Event event;
    Stage locking, late, held, releasing;  // the stage after `event`
  };
  constexpr Row kRows[] = {
      {Event::kStarted, Stage::kLocking, Stage::kLate, Stage::kHeld, Stage::kReleasing},
      {Event::kDelayed, Stage::kLate, Stage::kLate, Stage::kHeld, Stage::kReleasing},
      {Event::kLocked, Stage::kHeld, Stage::kHeld, Stage::kHeld, Stage::kReleasing},
      {Event::kEnded, Stage::kOpen, Stage::kOpen, Stage::kOpen, Stage::kOpen},
      {Event::kFailed, Stage::kUnusable, Stage::kLateUnusable, Stage::kOpen, Stage::kOpen},
      {Event::kReleased, Stage::kLocking, Stage::kLate, Stage::kReleasing, Stage::kReleasing},
      {Event::kAbandoned, Stage::kOpen, Stage::kGivenUp, Stage::kOpen, Stage::kOpen},
  };
  for (const Row& row : kRows) {
    SCOPED_TRACE(static_cast<int>(row.event));
    EXPECT_EQ(next_stage(Stage::kLocking, row.event), row.locking);
    EXPECT_EQ(next_stage(Stage::kLate, row.event), row.late);
    EXPECT_EQ(next_stage(Stage::kHeld, row.event), row.held);
    EXPECT_EQ(next_stage(Stage::kReleasing, row.event), row.releasing);
    for (const Stage last : {Stage::kUnusable, Stage::kLateUnusable, Stage::kGivenUp})
      EXPECT_EQ(next_stage(last, row.event), last);
    EXPECT_EQ(next_stage(Stage::kOpen, row.event),
              row.event == Event::kStarted ? Stage::kLocking : Stage::kOpen);
  }
}

TEST(DirectoryStages, DecideWhetherCheckpointsAreWrittenAndWaitedFor) {
  for (const Stage stage : kStages) {
    SCOPED_TRACE(static_cast<int>(stage));
    const bool writable = stage == Stage::kOpen || stage == Stage::kHeld ||
                          stage == Stage::kReleasing || stage == Stage::kGivenUp;
    EXPECT_EQ(can_write(stage), writable);
    EXPECT_EQ(holds_up_the_end(stage), stage == Stage::kLocking || stage == Stage::kReleasing);
    EXPECT_EQ(excuses_members(stage), !writable && stage != Stage::kLocking);
    EXPECT_EQ(was_late(stage),
              stage == Stage::kLate || stage == Stage::kLateUnusable || stage == Stage::kGivenUp);
  }
}

class LocalDirectoryTest : public PersistScript {
 protected:
  void make(const std::string& script) {
    directory_ = std::make_unique<LocalDirectory>(
        loop_, plan_, "a", program(script),
        LocalDirectory::Events{[this](const std::string& line) { said_.push_back(line); },
                               [this] { ++changes_; }});
  }
  bool reaches(Stage stage) {
    return run_until([&] { return directory_->stage() == stage; });
  }
  std::unique_ptr<LocalDirectory> directory_;
  int changes_ = 0;
};

TEST_F(LocalDirectoryTest, HoldsTheLockUntilItIsReleased) {
  make("echo $1 $2 $3 $4 $5 >" + folder_ + "/words; echo held; cat >/dev/null");
  directory_->lock();
  EXPECT_EQ(directory_->stage(), Stage::kLocking);
  EXPECT_FALSE(directory_->release());
  ASSERT_TRUE(reaches(Stage::kHeld));
  EXPECT_EQ(changes_, 1);
  EXPECT_TRUE(directory_->release());
  EXPECT_EQ(directory_->stage(), Stage::kReleasing);
  ASSERT_TRUE(reaches(Stage::kOpen));
  EXPECT_FALSE(directory_->release());
  std::string words;
  std::getline(std::ifstream(folder_ + "/words"), words);
  EXPECT_EQ(words, "hold /local /shared job-1 0");
  EXPECT_TRUE(said_.empty());
}

TEST_F(LocalDirectoryTest, IsUnusableIfItCannotBePrepared) {
  make("echo copying; echo no space >&2; exit 1");
  directory_->lock();
  ASSERT_TRUE(reaches(Stage::kUnusable));
  EXPECT_EQ(directory_->why_not_locked(), "no space");
  EXPECT_EQ(said_,
            (std::vector<std::string>{
                "host a: copying", "host a: no checkpoints are written or read here: no space"}));
}

TEST_F(LocalDirectoryTest, WaitsForAnotherJobUntilTheOwnOneIsOver) {
  make("echo held by job-0 >&2; exit 3");
  directory_->lock();
  ASSERT_TRUE(reaches(Stage::kLate));
  EXPECT_EQ(directory_->why_not_locked(), "held by job-0");
  EXPECT_EQ(said_.back(), "host a: no checkpoints are made here yet: held by job-0");
  directory_->abandon();
  EXPECT_EQ(directory_->stage(), Stage::kGivenUp);

  make("echo held by job-0 >&2; exit 3");
  directory_->on_end_of_job();
  directory_->lock();
  ASSERT_TRUE(reaches(Stage::kUnusable));
}

TEST_F(LocalDirectoryTest, ALostLockIsReported) {
  const std::string gone = folder_ + "/gone";
  make("echo held; until [ -e " + gone + " ]; do sleep 0.01; done; echo no disk >&2; exit 1");
  directory_->lock();
  ASSERT_TRUE(reaches(Stage::kHeld));
  std::ofstream(gone).close();
  ASSERT_TRUE(reaches(Stage::kOpen));
  EXPECT_EQ(said_.back(), "host a: the lock of /local is lost: no disk");
}

TEST_F(LocalDirectoryTest, ACheckOfTheOwnerLocksNothing) {
  make("echo $@; exit 1");
  directory_->check();
  EXPECT_EQ(directory_->stage(), Stage::kOpen);
  ASSERT_TRUE(run_until([&] { return changes_ > 0; }));
  EXPECT_EQ(directory_->stage(), Stage::kOpen);
  EXPECT_EQ(said_, (std::vector<std::string>{
                       "host a: owner /local job-1",
                       "host a: no checkpoints are written or read here: regroup-persist ended "
                       "without a message"}));
}

TEST_F(LocalDirectoryTest, AMissingProgramMakesItUnusable) {
  make("");
  std::filesystem::remove(folder_ + "/regroup-persist");
  directory_->lock();
  EXPECT_EQ(directory_->stage(), Stage::kUnusable);
}

}  // namespace
}  // namespace regroup::writer
