// The processes that write a save and copy a checkpoint, without the decisions about them.
#include "checkpoint/writer/save_writer.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <optional>

#include "checkpoint/writer/directory_copy.h"
#include "tests/checkpoint/writer/persist_script.h"

namespace regroup::writer {
namespace {

TEST(WriteStages, ACheckpointIsCommittedOnceItsStepIsPrinted) {
  const auto after = [](WriteEvent event) {
    std::vector<WriteStage> stages;
    for (const WriteStage stage : {WriteStage::kIdle, WriteStage::kWriting, WriteStage::kCommitted})
      stages.push_back(next_stage(stage, event));
    return stages;
  };
  EXPECT_EQ(after(WriteEvent::kStarted), std::vector<WriteStage>(3, WriteStage::kWriting));
  EXPECT_EQ(
      after(WriteEvent::kPrintedStep),
      (std::vector<WriteStage>{WriteStage::kIdle, WriteStage::kCommitted, WriteStage::kCommitted}));
  EXPECT_EQ(after(WriteEvent::kEnded), std::vector<WriteStage>(3, WriteStage::kIdle));
}

class SaveWriterTest : public PersistScript {
 protected:
  // Writes step 7 with `script` in place of regroup-persist.
  WriteEnd write(const std::string& script, bool kill = false) {
    std::optional<WriteEnd> end;
    SaveWriter writer(loop_, program(script),
                      {[&] { ++progress_; }, [&](const WriteEnd& one) { end = one; }});
    EXPECT_FALSE(writer.writing());
    EXPECT_TRUE(writer.start(7, 1 << 20, -1).ok());
    EXPECT_TRUE(writer.writing());
    writer.describe("{}");
    if (kill) writer.kill();
    EXPECT_TRUE(run_until([&] { return end.has_value(); }));
    EXPECT_FALSE(writer.writing());
    EXPECT_EQ(writer.step(), 7U);
    bandwidth_ = writer.bandwidth();
    return end.value_or(WriteEnd{});
  }
  int progress_ = 0;
  double bandwidth_ = 0;
};

TEST_F(SaveWriterTest, CommitsWhatItsProcessHasConfirmed) {
  const WriteEnd end = write("read text; echo; echo; echo 7; echo not removed >&2; exit 1");
  EXPECT_TRUE(end.committed);
  EXPECT_EQ(end.step, 7U);
  EXPECT_EQ(end.errors, "not removed");
  EXPECT_EQ(progress_, 2);
  EXPECT_GT(bandwidth_, 0);
  EXPECT_EQ(bandwidth_, end.bytes_per_second);
}

TEST_F(SaveWriterTest, CommitsNothingOnAnotherStepOrAnError) {
  const WriteEnd end = write("read text; echo 6; echo no space >&2; echo left >&2; exit 1");
  EXPECT_FALSE(end.committed);
  EXPECT_EQ(end.errors, "no space; left");
  EXPECT_EQ(WEXITSTATUS(end.wait_status), 1);
  EXPECT_EQ(bandwidth_, 0);
}

TEST_F(SaveWriterTest, ReportsTheEndOfAKilledProcess) {
  const WriteEnd end = write("sleep 600", /*kill=*/true);
  EXPECT_FALSE(end.committed);
  EXPECT_TRUE(WIFSIGNALED(end.wait_status));
}

TEST_F(SaveWriterTest, CannotStartAMissingProgram) {
  SaveWriter writer(loop_, folder_ + "/none", {[] {}, [](const WriteEnd&) {}});
  EXPECT_FALSE(writer.start(7, 1, -1).ok());
  EXPECT_FALSE(writer.writing());
  EXPECT_EQ(writer.step(), 0U);
}

TEST(CopyStages, ACommitDuringACopyMakesItOutdated) {
  EXPECT_EQ(next_stage(CopyStage::kIdle, CopyEvent::kCommitted), CopyStage::kCopying);
  EXPECT_EQ(next_stage(CopyStage::kCopying, CopyEvent::kCommitted), CopyStage::kOutdated);
  EXPECT_EQ(next_stage(CopyStage::kOutdated, CopyEvent::kCommitted), CopyStage::kOutdated);
  for (const CopyStage stage : {CopyStage::kIdle, CopyStage::kCopying, CopyStage::kOutdated})
    EXPECT_EQ(next_stage(stage, CopyEvent::kEnded), CopyStage::kIdle);
}

class DirectoryCopyTest : public PersistScript {
 protected:
  void make(const std::string& script) {
    copy_ = std::make_unique<DirectoryCopy>(
        loop_, plan_, program(script),
        DirectoryCopy::Events{[this](const std::string& line) { said_.push_back(line); }, [] {},
                              [this](const CopyEnd& end) { ends_.push_back(end); }});
  }
  std::unique_ptr<DirectoryCopy> copy_;
  std::vector<CopyEnd> ends_;
};

TEST_F(DirectoryCopyTest, CopiesAfterACommit) {
  make("echo; echo 20; echo step 10 is damaged >&2");
  copy_->on_commit(1 << 20);
  EXPECT_TRUE(copy_->copying());
  ASSERT_TRUE(run_until([&] { return !ends_.empty(); }));
  EXPECT_FALSE(copy_->copying());
  EXPECT_EQ(ends_[0].step, "20");
  EXPECT_EQ(ends_[0].errors, "step 10 is damaged");
  EXPECT_FALSE(ends_[0].outdated);
  EXPECT_GT(copy_->bandwidth(), 0);
}

TEST_F(DirectoryCopyTest, RunsOneCopyAtATime) {
  make("echo 20");
  copy_->on_commit(1);
  copy_->on_commit(1);
  ASSERT_TRUE(run_until([&] { return !ends_.empty(); }));
  EXPECT_TRUE(ends_[0].outdated);
  copy_->on_commit(copy_->bytes());
  ASSERT_TRUE(run_until([&] { return ends_.size() == 2; }));
  EXPECT_FALSE(ends_[1].outdated);
}

TEST_F(DirectoryCopyTest, AFailureHasAReason) {
  make("exit 1");
  copy_->on_commit(1);
  ASSERT_TRUE(run_until([&] { return !ends_.empty(); }));
  EXPECT_NE(ends_[0].wait_status, 0);
  EXPECT_EQ(ends_[0].errors, "regroup-persist ended without a message");
  EXPECT_EQ(copy_->bandwidth(), 0);
}

TEST_F(DirectoryCopyTest, NeedsASecondDirectory) {
  plan_.shared.clear();
  make("echo 20");
  copy_->on_commit(1);
  EXPECT_FALSE(copy_->copying());
}

}  // namespace
}  // namespace regroup::writer
