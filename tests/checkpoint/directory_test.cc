// Names, retention, lock, and what is committed, cleaned up and set aside.
#include "checkpoint/directory.h"
#include "base/status.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/crc32c.h"
#include "base/lock_owner.h"
#include "checkpoint/chain.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/file_io.h"
#include "checkpoint/tiers.h"
#include "tests/checkpoint/samples.h"

namespace regroup::checkpoint {
namespace {

namespace fs = std::filesystem;
using Steps = std::vector<proto::Step>;

class DirectoryTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(root_);
    ASSERT_TRUE(make_folder(root_).ok());
  }
  void TearDown() override { fs::remove_all(root_); }

  // A checkpoint of one file of four bytes; with `base`: of changes since that step.
  base::Status save(proto::Step step, proto::Step base = 0) const {
    const std::string stage = stage_path(root_, step, "u"), content = "data";
    REGROUP_RETURN_IF_ERROR(make_folder(stage));
    REGROUP_RETURN_IF_ERROR(write_new_file(stage + "/a.h5", content));
    Manifest m;
    m.step = step;
    m.content = base > 0 ? Content::kTableChanges : whole_;
    m.base = base;
    const std::uint32_t crc = base::crc32c(std::as_bytes(std::span(content)));
    m.files = {{"a.h5", 4, {}}};
    m.tensors = {{"t", "float32", {}, {{0, "t", {}, {0, 4, {crc}}}}}};
    return commit_stage(root_, stage, m);
  }
  Steps steps() const {
    Steps out;
    const auto entries = list(root_);
    for (const Entry& entry : *entries) out.push_back(entry.step);
    return out;
  }
  std::string path(const std::string& name) const { return root_ + "/" + name; }

  Content whole_ = Content::kWorld;  // of checkpoints without a base
  const std::string root_ =
      (fs::temp_directory_path() / ("checkpoints-" + std::to_string(::getpid()))).string();
};

TEST(StepNames, SurviveARoundTrip) {
  EXPECT_EQ(name_of_step(1234), "step-00001234");
  EXPECT_EQ(step_of_name("step-00001234"), 1234);
  EXPECT_EQ(step_of_name(name_of_step(12345678901)), 12345678901);
  for (const char* name :
       {"step-1234", "step-", "step-0000123x", "step-00001234 ", ".stage-1-u", "step--0001234"})
    EXPECT_EQ(step_of_name(name), std::nullopt) << name;
}

TEST(Retention, KeepsTheLastAndEveryNth) {
  const Steps all = {10, 20, 30, 40, 50, 60};
  EXPECT_EQ(steps_to_remove(all, {3, 0}), (Steps{30, 20, 10}));
  EXPECT_EQ(steps_to_remove(all, {3, 20}), (Steps{30, 10}));
  EXPECT_EQ(steps_to_remove(all, {0, 0}), (Steps{40, 30, 20, 10}));  // two stay whatever is asked
  EXPECT_EQ(steps_to_remove({10}, {1, 0}), Steps{});
  EXPECT_EQ(steps_to_remove(all, {2, 0}, 20), (Steps{40, 30, 10}));  // what was just made stays
}

TEST_F(DirectoryTest, CommitsListsAndPrunes) {
  for (const proto::Step step : {5, 10, 15, 20}) ASSERT_TRUE(save(step).ok());
  EXPECT_EQ(steps(), (Steps{20, 15, 10, 5}));
  EXPECT_EQ(*read_file(path("LATEST"), 100), "step-00000020\n");
  EXPECT_EQ(*prune(root_, {2, 5}), Steps{});
  EXPECT_EQ(*prune(root_, {2, 10}), Steps{5});
  EXPECT_EQ(steps(), (Steps{20, 15, 10}));
  const base::Status again = save(20);
  EXPECT_EQ(again.code(), base::Code::kInvalidArgument);
  EXPECT_NE(again.message().find("a checkpoint of this step exists already"), std::string::npos);
}

TEST_F(DirectoryTest, PruneKeepsWhatAKeptOneNeeds) {
  ASSERT_TRUE(save(1).ok());
  ASSERT_TRUE(save(2).ok());
  ASSERT_TRUE(save(3, 2).ok());
  ASSERT_TRUE(save(5, 3).ok());
  ASSERT_TRUE(save(6, 5).ok());
  // One damaged file of step 2 must not lose all.
  EXPECT_EQ(*prune(root_, {2, 0}), Steps{});
  ASSERT_TRUE(save(7).ok());
  fs::permissions(path("step-00000006/MANIFEST"), fs::perms::none);
  if (::geteuid() == 0) {  // root reads it in spite of that
    fs::remove(path("step-00000006/MANIFEST"));
    fs::create_symlink("MANIFEST", path("step-00000006/MANIFEST"));
  }
  EXPECT_FALSE(prune(root_, {2, 0}).ok()) << "it may need those that would be removed";
  EXPECT_EQ(steps(), (Steps{7, 6, 5, 3, 2, 1}));
  fs::remove_all(path("step-00000006"));
  ASSERT_TRUE(save(6, 5).ok());
  EXPECT_EQ(*prune(root_, {2, 0}), Steps{1});
  ASSERT_TRUE(save(8).ok());
  EXPECT_EQ(*prune(root_, {2, 0}), (Steps{6, 5, 3, 2}));
}

TEST_F(DirectoryTest, AChainIsGoodIfAllOfItIs) {
  const auto newest = [&] {
    std::string said;
    const auto found = newest_good(root_, false, [&](const std::string& line) { said += line; });
    return fmt::format("{} {}", found->has_value() ? (*found)->step : 0, said);
  };
  ASSERT_TRUE(save(1).ok());
  ASSERT_TRUE(save(2, 1).ok());
  EXPECT_NE(newest().find("1 checkpoint " + path("step-00000002")), std::string::npos)
      << "a World's state is no base: " << newest();
  fs::remove_all(root_);
  ASSERT_TRUE(make_folder(root_).ok());
  whole_ = Content::kTables;
  for (const auto& [step, base] : {std::pair{1, 0}, {2, 1}, {3, 2}, {4, 3}})
    ASSERT_TRUE(save(static_cast<proto::Step>(step), static_cast<proto::Step>(base)).ok());
  EXPECT_EQ(newest(), "4 ");
  const auto chain = open_chain(path("step-00000003/"));
  ASSERT_TRUE(chain.ok()) << chain.status().to_string();
  ASSERT_EQ(chain->size(), 3U);
  EXPECT_EQ(chain->front().manifest().step, 1U);
  EXPECT_EQ(chain->back().manifest().step, 3U);
  EXPECT_TRUE(check_whole(chain->front()).ok());
  EXPECT_EQ(check_whole(chain->back()).code(), base::Code::kInvalidArgument);
  std::ofstream(path("step-00000003/a.h5")) << "dota";
  EXPECT_TRUE(newest().starts_with("2 checkpoint " + path("step-00000004"))) << newest();
  EXPECT_NE(newest().find("has what changed since step 3, which cannot be read"),
            std::string::npos);
  fs::remove_all(path("step-00000001"));
  EXPECT_TRUE(newest().starts_with("0 ")) << newest();
}

TEST_F(DirectoryTest, CleansWhatCrashesLeave) {
  ASSERT_TRUE(save(1).ok());
  fs::create_directories(path(".stage-2-u/deep"));
  fs::create_directories(path(".trash-step-00000000-7"));
  std::ofstream(path("kept.txt")) << "mine";
  ASSERT_TRUE(clean(root_).ok());
  EXPECT_FALSE(fs::exists(path(".stage-2-u")));
  EXPECT_FALSE(fs::exists(path(".trash-step-00000000-7")));
  EXPECT_TRUE(fs::exists(path("kept.txt")));
  EXPECT_EQ(steps(), Steps{1});
}

TEST_F(DirectoryTest, TheSecondJobIsRefusedAndTheFirstNamed) {
  auto first = DirectoryLock::take(root_, "job 7 (process 42 on hal)");
  ASSERT_TRUE(first.ok()) << first.status().message();
  const auto second = DirectoryLock::take(root_, "job 8");
  ASSERT_EQ(second.code(), base::Code::kUnavailable);
  EXPECT_NE(second.status().message().find("job 7 (process 42 on hal) has it"), std::string::npos);
  { const DirectoryLock gone = std::move(*first); }
  EXPECT_TRUE(DirectoryLock::take(root_, "job 8").ok());
}

TEST_F(DirectoryTest, AJobThatIsEndingIsNamedAsSuch) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  std::string owner = base::lock_owner("7");
  const std::string ours = fmt::format("process {} ", ::getpid());
  for (const bool ended : {false, true}) {
    if (ended) owner.replace(owner.find(ours), ours.size(), fmt::format("process {} ", child));
    const auto first = DirectoryLock::take(root_, owner);
    ASSERT_TRUE(first.ok());
    const std::string why = DirectoryLock::take(root_, "job 8").status().message();
    EXPECT_NE(why.find(" has it"), std::string::npos) << why;
    EXPECT_EQ(why.find("whose launcher has ended") != std::string::npos, ended) << why;
  }
}

TEST_F(DirectoryTest, SetsADamagedCheckpointAsideWithItsReason) {
  for (const proto::Step step : {1, 2, 3}) ASSERT_TRUE(save(step).ok());
  std::ofstream(path("step-00000003/a.h5")) << "dat!";
  fs::remove(path("step-00000002/MANIFEST"));
  std::vector<std::string> said;
  const auto newest = newest_good(root_, true, [&](const std::string& s) { said.push_back(s); });
  ASSERT_TRUE(newest.ok()) << newest.status().message();
  ASSERT_TRUE(newest->has_value());
  EXPECT_EQ((*newest)->step, 1);
  EXPECT_EQ(said.size(), 2U);
  EXPECT_EQ(steps(), Steps{1});
  EXPECT_NE(read_file(path("damaged-step-00000003/REASON"), 1000)->find("a.h5: bytes 0 to 4"),
            std::string::npos);
  EXPECT_TRUE(fs::exists(path("damaged-step-00000002/REASON")));
  ASSERT_TRUE(save(3).ok());  // its name is free again, and the next damaged one finds another
  fs::remove(path("step-00000003/a.h5"));
  ASSERT_TRUE(newest_good(root_, true, [](const std::string&) {}).ok());
  EXPECT_TRUE(fs::exists(path("damaged-step-00000003.1/REASON")));
}

TEST_F(DirectoryTest, RemovesANewerCheckpointSetAsideOnceItIsMadeAgain) {
  for (const proto::Step step : {5, 10, 15, 20, 25, 30}) ASSERT_TRUE(save(step).ok());
  ASSERT_EQ(*prepare_local(root_, 10), (Steps{30, 25, 20, 15}));
  // No more of them than checkpoints are kept, the newest.
  EXPECT_EQ(*prune_aside(root_, {3, 0}), std::vector{path("newer-step-00000015")});
  EXPECT_EQ(*prune_aside(root_, {3, 0}), std::vector<std::string>{});
  for (const proto::Step step : {15, 20, 25}) ASSERT_TRUE(save(step).ok());
  EXPECT_EQ(*prune_aside(root_, {3, 0}),
            std::vector<std::string>{});  // of step 20 or later there are two
  ASSERT_TRUE(save(30).ok());
  EXPECT_EQ(*prune_aside(root_, {3, 0}), std::vector{path("newer-step-00000020")});
  ASSERT_EQ(*prepare_local(root_, 25), Steps{30});  // a second one of step 30
  EXPECT_TRUE(fs::exists(path("newer-step-00000030.1/REASON")));
  fs::create_directories(path("newer-step-00000030.x"));  // somebody else's
  for (const proto::Step step : {30, 31, 32}) ASSERT_TRUE(save(step).ok());
  EXPECT_EQ(prune_aside(root_, {3, 0})->size(), 3U);
  EXPECT_EQ(steps(), (Steps{32, 31, 30, 25, 20, 15, 10, 5}));
  EXPECT_FALSE(fs::exists(path("newer-step-00000030")));
  EXPECT_TRUE(fs::exists(path("newer-step-00000030.x")));
}

TEST_F(DirectoryTest, RemovesDamagedCheckpointsOnceEnoughAreCommitted) {
  for (const proto::Step step : {1, 2, 3, 4, 5}) ASSERT_TRUE(save(step).ok());
  for (const proto::Step step : {2, 3, 4, 5})
    std::ofstream(path(name_of_step(step) + "/a.h5")) << "dat!";
  ASSERT_EQ((*newest_good(root_, true, [](const std::string&) {}))->step, 1);
  // No more of them than checkpoints are kept, the newest.
  EXPECT_EQ(*prune_aside(root_, {3, 0}), std::vector{path("damaged-step-00000002")});
  for (const proto::Step step : {3, 4}) ASSERT_TRUE(save(step).ok());
  EXPECT_EQ(*prune_aside(root_, {3, 0}), std::vector<std::string>{});
  ASSERT_TRUE(save(5).ok());
  EXPECT_EQ(*prune_aside(root_, {3, 0}), std::vector{path("damaged-step-00000003")});
  EXPECT_TRUE(fs::exists(path("damaged-step-00000005/REASON")));
  for (const proto::Step step : {6, 7}) ASSERT_TRUE(save(step).ok());
  EXPECT_EQ(prune_aside(root_, {3, 0})->size(), 2U);
  EXPECT_FALSE(fs::exists(path("damaged-step-00000005")));
  EXPECT_EQ(steps(), (Steps{7, 6, 5, 4, 3, 1}));
}

TEST_F(DirectoryTest, ReadsTheNewestOfSeveralPlacesOnly) {
  for (const proto::Step step : {1, 2}) ASSERT_TRUE(save(step).ok());
  const std::string other = path("other");
  fs::create_directories(other);
  fs::copy(path("step-00000001"), other + "/step-00000001");
  fs::copy(path("step-00000002"), other + "/step-00000002");
  std::vector<std::string> said;
  std::uint64_t read = 0;  // bytes
  const auto newest = [&](const std::vector<Place>& places) {
    said.clear(), read = 0;
    const auto found = newest_good(
        places, [&](const std::string& s) { said.push_back(s); },
        [&](const Progress&) { read += 4; });
    return found.ok() && found->has_value() ? (*found)->path : found.status().message();
  };
  EXPECT_EQ(newest({{root_, true}, {other, false}}), path("step-00000002"));
  EXPECT_EQ(read, 4U);
  EXPECT_EQ(newest({{other, false}, {root_, true}}), other + "/step-00000002");
  EXPECT_EQ(read, 4U);
  std::ofstream(other + "/step-00000002/a.h5") << "dat!";
  EXPECT_EQ(newest({{root_, true}, {other, false}}), path("step-00000002"));  // not looked at
  EXPECT_TRUE(said.empty());
  EXPECT_EQ(newest({{other, false}, {root_, true}}), path("step-00000002"));
  EXPECT_EQ(said.size(), 1U);
  EXPECT_TRUE(fs::exists(other + "/step-00000002"));  // passed over
  fs::remove_all(path("step-00000002"));
  EXPECT_EQ(newest({{path("none"), true}, {root_, true}}), path("step-00000001"));
  EXPECT_EQ(newest({{root_, true}, {other, true}}), path("step-00000001"));
  EXPECT_TRUE(fs::exists(other + "/damaged-step-00000002/REASON"));
}

TEST_F(DirectoryTest, AnEmptyDirectoryIsNoError) {
  EXPECT_FALSE(newest_good(root_, true, [](const std::string&) {})->has_value());
  EXPECT_FALSE(newest_good(path("none"), true, [](const std::string&) {})->has_value());
  EXPECT_EQ(list(path("none")).code(), base::Code::kNotFound);
}

TEST_F(DirectoryTest, IgnoresTheLatestFile) {
  for (const proto::Step step : {1, 2}) ASSERT_TRUE(save(step).ok());
  std::ofstream(path("LATEST")) << "step-00000001\n";
  EXPECT_EQ((*newest_good(root_, false, [](const std::string&) {}))->step, 2);
}

TEST_F(DirectoryTest, BelongsToTheJobThatItsLockNames) {
  EXPECT_EQ(check_owner(root_, "a1").code(), base::Code::kNotFound);
  ASSERT_TRUE(write_new_file(path("LOCK"), "job a1 (process 7 on node1)").ok());
  EXPECT_TRUE(check_owner(root_, "a1").ok());
  const base::Status other = check_owner(root_, "a");
  EXPECT_EQ(other.code(), base::Code::kUnavailable);
  EXPECT_EQ(other.message(), path("LOCK") + ": \"job a1 (process 7 on node1)\" has it, not job a");
}

TEST_F(DirectoryTest, WaitsForTheOwnerOfALockThatIsBeingTaken) {
  std::ofstream lock(path("LOCK"));  // made, and not written yet
  std::thread owner([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    lock << "job a1 (process 7 on node1)" << std::flush;
  });
  const base::Status status = check_owner(root_, "a1");
  owner.join();
  EXPECT_TRUE(status.ok()) << status.message();
}

}  // namespace
}  // namespace regroup::checkpoint
