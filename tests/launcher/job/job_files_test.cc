// Finding jobs by the sockets they listen on.
#include "launcher/job/job_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "launcher/job/fixed_job.h"
#include "launcher/metrics/usage_text.h"
#include "launcher/transport/unix_socket.h"

namespace regroup::job {
namespace {

class JobFilesTest : public testing::Test {
 protected:
  JobFilesTest() {
    char name[] = "/tmp/job-files-XXXXXX";
    folder_ = ::mkdtemp(name);
    environment_ = {{"XDG_RUNTIME_DIR", folder_}};
  }
  ~JobFilesTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<transport::Listener> serve(const std::string& id) {
    auto files = make_job_files(environment_, id);
    EXPECT_TRUE(files.ok()) << files.status().to_string();
    auto listener = std::make_unique<transport::Listener>(loop_, [](base::Fd, pid_t) {});
    EXPECT_TRUE(listener->start(files->control_socket()).ok());
    return listener;
  }

  boost::asio::io_context loop_;
  std::string folder_;
  spec::Environment environment_;
};

TEST_F(JobFilesTest, TheOnlyJobNeedsNoName) {
  EXPECT_THAT(find_job(environment_, "").status().message(),
              testing::StartsWith("no elastic job of this user is running"));
  const auto one = serve("one");
  auto found = find_job(environment_, "");
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->folder, folder_ + "/regroup/one");
  const auto two = serve("two");
  EXPECT_EQ(find_job(environment_, "").code(), base::Code::kNotFound);
  EXPECT_EQ(find_job(environment_, "two")->folder, folder_ + "/regroup/two");
  const std::string told = find_job(environment_, "three").status().message();
  EXPECT_NE(told.find("no elastic job three"), std::string::npos);
  EXPECT_NE(told.find("one"), std::string::npos);
}

TEST_F(JobFilesTest, AJobThatWasKilledDoesNotCount) {
  { const auto dead = serve("dead"); }
  const auto living = serve("living");
  EXPECT_EQ(find_job(environment_, "")->folder, folder_ + "/regroup/living");
  EXPECT_FALSE(find_job(environment_, "dead").ok());
}

TEST_F(JobFilesTest, AJobOfAFixedNumberIsThereWhileItsFileIsLocked) {
  auto fixed = announce_job(environment_, "0000aaaa", 3);
  ASSERT_TRUE(fixed);
  EXPECT_EQ(find_job(environment_, "", JobKind::kAny)->folder, folder_ + "/regroup/0000aaaa");
  EXPECT_EQ(find_job(environment_, "").status().message(),
            "no elastic job of this user is running");
  EXPECT_EQ(
      find_job(environment_, "0000aaaa").status().message(),
      "job 0000aaaa has a fixed number of members (-np N), which supports only `regroup status`");
  std::ofstream(fixed->files->usage())
      << metrics::usage_json({{{0, 2, 4711, {}, {}}, {1.5, 8U << 20, 1}, 0.5, {}, "n1"}});
  const std::string status = *fixed_job_status(*fixed->files);
  EXPECT_THAT(fixed_job_table(status),
              testing::HasSubstr("running with 3 members, a fixed number\n"));
  EXPECT_THAT(fixed_job_table(status),
              testing::ContainsRegex("\n +0 +2 n1 +4711 +1.50 +0.50 +8 MiB -\n"));
  {
    const auto elastic = serve("one");  // scripts that ask for it go on to get it
    EXPECT_EQ(find_job(environment_, "", JobKind::kAny)->folder, folder_ + "/regroup/one");
    const auto other = announce_job(environment_, "0000bbbb", 1);
    EXPECT_EQ(find_job(environment_, "", JobKind::kAny)->folder, folder_ + "/regroup/one");
    const auto two = serve("two");
    EXPECT_THAT(
        find_job(environment_, "", JobKind::kAny).status().message(),
        testing::StartsWith("several jobs of this user are running; expected the ID of one: "));
  }
  const JobFiles files = *fixed->files;
  fixed->lock = base::FileLock::adopt({});  // as if it had been killed
  EXPECT_FALSE(is_fixed(files));
  EXPECT_EQ(find_job(environment_, "0000aaaa", JobKind::kAny).code(), base::Code::kNotFound);
  EXPECT_EQ(fixed_job_status(files).code(), base::Code::kNotFound);
}

TEST_F(JobFilesTest, StatusNamesTheRolesOfMembers) {
  const auto job = announce_job(environment_, "0000aaaa", 3, {{"chief", 1}, {"worker", 2}});
  ASSERT_TRUE(job);
  std::ofstream(job->files->usage())
      << metrics::usage_json({{{0, 2, 4711, {}, {}}, {1.5, 8U << 20, 1}, 0.5, {}, "n1"}});
  const std::string status = *fixed_job_status(*job->files);
  EXPECT_THAT(status, testing::HasSubstr(R"("role":"worker","role_index":1)"));
  EXPECT_THAT(
      fixed_job_table(status),
      testing::ContainsRegex("\nmember +rank role     host +pid .*\n +0 +2 worker:1 n1 +4711 "));
}

TEST_F(JobFilesTest, RemovesWhatKilledJobsLeft) {
  const auto age = [](const JobFiles& files) {
    const timespec long_ago[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, files.folder.c_str(), long_ago, 0), 0);
  };
  const auto make = [this](const std::string& id) { return *make_job_files(environment_, id); };
  const JobFiles left = make("0000000a"), restarting = make("0000000b"), young = make("0000000c"),
                 foreign = make("no-job-id");
  transport::Listener agent(loop_, [](base::Fd, pid_t) {});
  ASSERT_TRUE(agent.start(restarting.agent_socket()).ok());
  {
    ASSERT_TRUE(
        transport::Listener(loop_, [](base::Fd, pid_t) {}).start(left.control_socket()).ok());
  }
  const auto fixed = announce_job(environment_, "0000000e", 1);
  ASSERT_TRUE(fixed);
  for (const JobFiles& files : {left, restarting, foreign, *fixed->files}) age(files);
  make("0000000d");
  EXPECT_FALSE(std::filesystem::exists(left.folder));
  for (const JobFiles& files : {restarting, young, foreign, *fixed->files}) {
    EXPECT_TRUE(std::filesystem::exists(files.folder)) << files.folder;
  }
}

TEST_F(JobFilesTest, LiesInTheTemporaryFolderOtherwise) {
  EXPECT_EQ(*runtime_folder({{"TMPDIR", folder_}}),
            folder_ + "/regroup-" + std::to_string(::geteuid()));
}

TEST_F(JobFilesTest, AFolderThatIsNotOursAloneIsNotUsed) {
  const std::string elsewhere = folder_ + "/elsewhere";
  const std::string tmp = folder_ + "/tmp";
  const std::string usual = tmp + "/regroup-" + std::to_string(::geteuid());
  for (const std::string& made : {elsewhere, tmp}) ASSERT_EQ(::mkdir(made.c_str(), 0700), 0);
  ASSERT_EQ(::symlink(elsewhere.c_str(), (folder_ + "/regroup").c_str()),
            0);  // as another user might
  environment_["TMPDIR"] = tmp;
  std::string note;
  EXPECT_EQ(*runtime_folder(environment_, &note), usual);
  EXPECT_NE(note.find(folder_ + "/regroup: expected a directory of user "), std::string::npos)
      << note;
  EXPECT_NE(note.find(": using " + usual), std::string::npos) << note;

  ASSERT_EQ(::chmod(usual.c_str(), 0777), 0);
  EXPECT_EQ(*runtime_folder(environment_), usual + "-1");
  EXPECT_EQ(*runtime_folder(environment_), usual + "-1");  // a later call finds the same one
  EXPECT_TRUE(std::filesystem::is_empty(elsewhere));
}

TEST_F(JobFilesTest, NothingIsSaidOfTheUsualFolder) {
  std::string note;
  EXPECT_TRUE(runtime_folder(environment_, &note).ok());
  EXPECT_EQ(note, "");
}

TEST_F(JobFilesTest, TheFolderIsPrivateAndGoesAway) {
  auto files = make_job_files(environment_, "job");
  ASSERT_TRUE(files.ok());
  struct stat info {};
  ASSERT_EQ(::stat(files->folder.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700U);
  remove_job_files(*files);
  EXPECT_NE(::stat(files->folder.c_str(), &info), 0);
}

TEST_F(JobFilesTest, GoAwayWithTheFirstWhoHoldsThem) {
  const HeldJobFiles launcher(*make_job_files(environment_, "job"));
  {
    HeldJobFiles agent(*launcher);
    EXPECT_TRUE(std::filesystem::exists(launcher->folder));
    const HeldJobFiles moved = std::move(agent);
    agent = HeldJobFiles();
    EXPECT_TRUE(std::filesystem::exists(launcher->folder));
  }
  EXPECT_FALSE(std::filesystem::exists(launcher->folder));  // and removing it again does no harm
}

TEST_F(JobFilesTest, OfAFixedJobGoAwayWithIt) {
  auto fixed = announce_job(environment_, "0000aaaa", 3);
  ASSERT_TRUE(fixed);
  const JobFiles files = *fixed->files;
  fixed.reset();
  EXPECT_FALSE(std::filesystem::exists(files.folder));
}

}  // namespace
}  // namespace regroup::job
