// A real file and real commands: notices, and what is said of sources that fail.
#include "tests/launcher/preempt/watch_fixture.h"

namespace regroup::preempt {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(WatchTest, AFreezeDoesNotEndTheJob) {
  write(azure("Freeze", 600, R"(, "DurationInSeconds": 9)"));
  watch({.file = path_});
  ASSERT_TRUE(until([&] { return !said_.empty(); }));
  EXPECT_THAT(said_[0], testing::ContainsRegex(
                            "Freeze of this host in (600|59[0-9]) s, for 9 s: the job continues"));
  EXPECT_TRUE(pauses_.empty());
  write(azure("Freeze", 5, R"(, "DurationInSeconds": 9)"));
  ASSERT_TRUE(until([&] { return !pauses_.empty(); }));
  loop_.run_for(milliseconds(50));
  write(R"({"DocumentIncarnation": 2, "Events": []})");
  ASSERT_TRUE(until([&] { return pauses_.size() == 2; }));
  EXPECT_THAT(pauses_, ElementsAre("pauses", "moves"));
  EXPECT_EQ(said_.size(), 1U);
  EXPECT_TRUE(heard_.empty());
}

TEST_F(WatchTest, ALongFreezeIsASuspensionIfItsEndIsHandled) {
  int over = 0;
  write(azure("Freeze", 5, R"(, "DurationInSeconds": 900)"));
  watch({.file = path_}, [&](const std::string&) { ++over; });
  ASSERT_TRUE(until([&] { return !heard_.empty(); }));
  EXPECT_THAT(heard_, ElementsAre("suspend --notice-file " + path_));
  write("");
  ASSERT_TRUE(until([&] { return over == 1; }));
  EXPECT_TRUE(pauses_.empty());
}

TEST_F(WatchTest, IgnoresAPlanOfAnotherDayUntilItIsDue) {
  write(azure("Redeploy", 3 * 86400));
  watch({.file = path_});
  ASSERT_TRUE(until([&] { return !said_.empty(); }));
  EXPECT_THAT(said_[0],
              testing::ContainsRegex("Redeploy in 25[0-9]+ s: acted upon 16 minutes before"));
  write(
      R"([{"Code": "system-reboot", "State": "canceled", "NotBefore": "1 Jan 2020 00:00:00 GMT"}])");
  loop_.run_for(milliseconds(50));
  write(azure("Redeploy", 600, R"(, "EventStatus": "Canceled")"));
  loop_.run_for(milliseconds(50));
  EXPECT_TRUE(heard_.empty());
  write(azure("Redeploy", 600));
  ASSERT_TRUE(until([&] { return !heard_.empty(); }));
}

TEST_F(WatchTest, ReportsAnEventOnceAndAgainIfItComesSooner) {
  write(azure("Terminate", 600));
  watch({.file = path_});
  ASSERT_TRUE(until([&] { return !heard_.empty(); }));
  write(azure("Terminate", 600));  // another document
  loop_.run_for(milliseconds(50));
  EXPECT_EQ(heard_.size(), 1U);
  write(azure("Terminate", 900));
  loop_.run_for(milliseconds(50));
  EXPECT_EQ(heard_.size(), 1U);
  write(azure("Terminate", 300));
  ASSERT_TRUE(until([&] { return heard_.size() == 2; }));
  write(R"({"Events": [{"EventType": "Terminate", "EventStatus": "Started", "NotBefore": ""}]})");
  ASSERT_TRUE(until([&] { return heard_.size() == 3; }));
  loop_.run_for(milliseconds(50));
  EXPECT_EQ(heard_.size(), 3U);
}

TEST_F(WatchTest, ReportsANewFileOnce) {
  watch({.file = path_});
  loop_.run_for(milliseconds(50));
  EXPECT_TRUE(heard_.empty());
  write("shrink within=5 hosts=n2\n");  // another host's
  loop_.run_for(milliseconds(50));
  EXPECT_TRUE(heard_.empty());
  write("shrink within=5 hosts=n1,n2\n");
  ASSERT_TRUE(until([&] { return !heard_.empty(); }));
  loop_.run_for(milliseconds(50));
  EXPECT_THAT(heard_, ElementsAre("shrink --notice-file " + path_));
  EXPECT_TRUE(said_.empty());
}

TEST_F(WatchTest, ASuspensionEndsWithItsFile) {
  int over = 0;
  watch({.file = path_}, [&](const std::string&) { ++over; });
  write("suspend within=5 hosts=n1\n");
  ASSERT_TRUE(until([&] { return !heard_.empty(); }));
  write("suspend within=3 hosts=n1,n2\n");  // it lasts
  loop_.run_for(milliseconds(50));
  EXPECT_EQ(over, 0);
  write("suspend hosts=n2\n");
  ASSERT_TRUE(until([&] { return over == 1; }));
  write("suspend\n");
  ASSERT_TRUE(until([&] { return heard_.size() == 2; }));
  std::filesystem::remove(path_);
  ASSERT_TRUE(until([&] { return over == 2; }));
  write("kill\n");  // the last word
  ASSERT_TRUE(until([&] { return heard_.size() == 3; }));
  std::filesystem::remove(path_);
  loop_.run_for(milliseconds(50));
  EXPECT_EQ(over, 2);
}

TEST_F(WatchTest, AKnownSuspensionIsNotReportedAgainButItsEndIs) {
  write("suspend hosts=n1\n");
  int over = 0;
  watch({.file = path_}, [&](const std::string&) { ++over; }, {"--notice-file " + path_});
  loop_.run_for(milliseconds(50));
  EXPECT_TRUE(heard_.empty());  // it is no news
  EXPECT_EQ(over, 0);
  write("rubbish");
  ASSERT_TRUE(until([&] { return !said_.empty(); }));
  EXPECT_EQ(over, 0);
  std::filesystem::remove(path_);
  ASSERT_TRUE(until([&] { return over == 1; }));
  write("suspend hosts=n1\n");
  ASSERT_TRUE(until([&] { return heard_.size() == 1; }));
}

TEST_F(WatchTest, ASuspensionEndsWithTheLastOfItsSources) {
  const std::string other = path_ + "2";
  std::vector<std::string> over;
  write("suspend\n");
  std::ofstream(other) << "suspend\n";
  watch({.file = path_, .command = "cat " + other + " 2>/dev/null || true"},
        [&](const std::string& source) { over.push_back(source); });
  ASSERT_TRUE(until([&] { return heard_.size() == 2; }));
  std::filesystem::remove(path_);
  loop_.run_for(milliseconds(200));
  EXPECT_TRUE(over.empty());
  std::filesystem::remove(other);
  ASSERT_TRUE(until([&] { return !over.empty(); }));
  EXPECT_THAT(over, ElementsAre(HasSubstr("--notice-command cat")));
}

TEST_F(WatchTest, ASuspensionIsAPlainNoticeWithoutAHandlerOfItsEnd) {
  watch({.file = path_});
  write("suspend\n");
  ASSERT_TRUE(until([&] { return !heard_.empty(); }));
  write("kill\n");
  loop_.run_for(milliseconds(50));
  EXPECT_EQ(heard_.size(), 1U);
}

TEST_F(WatchTest, ReportsInvalidTextOnceAndReadsTheFileAgain) {
  write("rubbish");
  watch({.file = path_});
  ASSERT_TRUE(until([&] { return !said_.empty(); }));
  loop_.run_for(milliseconds(100));
  ASSERT_EQ(said_.size(), 1U);
  EXPECT_THAT(said_[0], HasSubstr("malformed notice 'rubbish'"));
  EXPECT_THAT(said_[0], HasSubstr("polled again every 0.01 s"));
  write("kill");
  EXPECT_TRUE(until([&] { return !heard_.empty(); }));
}

TEST_F(WatchTest, RefusesAFolderInPlaceOfAFile) {
  watch({.file = folder_});
  ASSERT_TRUE(until([&] { return !said_.empty(); }));
  EXPECT_THAT(said_[0], HasSubstr("not a regular file"));
}

TEST_F(WatchTest, RunsACommandUntilItPrintsANotice) {
  watch({.command = "test -e " + path_ + " && echo suspend within=3 || exit 0"});
  loop_.run_for(milliseconds(100));
  EXPECT_TRUE(heard_.empty());
  write("");
  ASSERT_TRUE(until([&] { return !heard_.empty(); }));
  EXPECT_THAT(heard_[0], HasSubstr("suspend --notice-command test -e"));
}

TEST_F(WatchTest, ReportsAFailedCommandAndRunsItAgain) {
  watch(
      {.command = "test -e " + path_ + " && echo kill && exit 0; echo no such cloud >&2; exit 3"});
  ASSERT_TRUE(until([&] { return !said_.empty(); }));
  EXPECT_THAT(said_[0], HasSubstr("ended with status 3: no such cloud"));
  loop_.run_for(milliseconds(100));
  EXPECT_EQ(said_.size(), 1U);
  write("");
  EXPECT_TRUE(until([&] { return !heard_.empty(); }));
}

TEST_F(WatchTest, KillsAHangingCommandWithItsChildren) {
  watch({.command = "sleep 4711; true"});
  ASSERT_TRUE(until([&] { return !said_.empty(); }));
  EXPECT_THAT(said_[0], HasSubstr("did not end within 10 s and was killed"));
  watch_->stop();
  const auto sleeps = [] {
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      std::ifstream file(entry.path() / "cmdline", std::ios::binary);
      const std::string line((std::istreambuf_iterator<char>(file)), {});
      if (line.find(std::string("sleep\0004711", 10)) != std::string::npos) return true;
    }
    return false;
  };
  EXPECT_TRUE(until([&] { return !sleeps(); }));  // a killed process takes a moment to go
}

TEST_F(WatchTest, IgnoresAFilesEventOfAnotherMachine) {
  write(azure("Preempt", 30, R"(, "Resources": ["workers_4"])"));
  watch({.file = path_});
  ASSERT_TRUE(until([&] { return !said_.empty(); }));
  EXPECT_THAT(
      said_[0],
      HasSubstr("Preempt of workers_4 is assumed to concern another machine; this host is n1"));
  write(azure("Preempt", 30, R"(, "Resources": ["N1"])"));
  ASSERT_TRUE(until([&] { return !heard_.empty(); }));
}

TEST_F(WatchTest, CombinesSeveralLinesIntoTheGravestAndSoonest) {
  write("shrink within=60\nkill within=300\nkill within=1 hosts=n2\n");
  watch({.file = path_});
  ASSERT_TRUE(until([&] { return !heard_.empty(); }));
  EXPECT_THAT(heard_, ElementsAre("kill --notice-file " + path_));
}

}  // namespace
}  // namespace regroup::preempt
