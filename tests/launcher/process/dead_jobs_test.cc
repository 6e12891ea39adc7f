// Whose lock is free is dead; its processes are known by their environment, and no others are
// touched.
#include "launcher/process/dead_jobs.h"
#include "base/clock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "launcher/process/job_record.h"
#include "tests/launcher/process/recorded.h"

namespace regroup::process {
namespace {

constexpr std::chrono::seconds kLimit{5};

class Sleeper {
 public:
  explicit Sleeper(const std::string& entry) : pid_(::vfork()) {
    const char* argv[] = {"sleep", "1000", nullptr};
    const char* envp[] = {"A=1", entry.c_str(), nullptr};
    if (pid_ != 0) return;
    ::execve("/bin/sleep", const_cast<char**>(argv), const_cast<char**>(envp));
    ::_exit(127);
  }
  ~Sleeper() {
    if (!lives()) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  [[nodiscard]] pid_t pid() const { return pid_; }
  bool lives() {
    gone_ = gone_ || ::waitpid(pid_, nullptr, WNOHANG) == pid_;
    return !gone_;
  }
  // A killed process has no environment any more a moment before its end.
  bool ends() {
    const base::SystemClock clock;
    const base::TimePoint end = clock.now() + kLimit;
    while (lives() && clock.now() < end) ::usleep(1000);
    return gone_;
  }

 private:
  pid_t pid_;
  bool gone_ = false;
};

TEST(JobRecord, IsTakenOverOnceItsLastHolderHasEnded) {
  const Folder folder;
  auto record = JobRecord::create(folder.path(), "0123abcd");
  ASSERT_TRUE(record.ok()) << record.status().to_string();
  const std::string path = folder.path() + "/0123abcd.job";
  EXPECT_EQ(job_records(folder.path()), std::vector{path});
  EXPECT_EQ(JobRecord::take_over(path), nullptr);
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  const pid_t holder = ::fork();
  if (holder == 0) {
    ::close(pipe[1]);
    char byte = 0;
    ::_exit(::read(pipe[0], &byte, 1) == 0 ? 0 : 1);
  }
  record->reset();
  EXPECT_EQ(JobRecord::take_over(path), nullptr);  // the forked process holds it
  ::close(pipe[1]);
  EXPECT_EQ(::waitpid(holder, nullptr, 0), holder);
  ::close(pipe[0]);
  const auto mine = JobRecord::take_over(path);
  ASSERT_NE(mine, nullptr);
  EXPECT_EQ(mine->job(), "0123abcd");
  EXPECT_EQ(JobRecord::take_over(path), nullptr);  // now it is mine
}

TEST(JobRecord, KeepsTheRecordOfAnotherJob) {
  const Folder folder;
  const auto record = JobRecord::create(folder.path(), "0123abcd");
  const auto again = JobRecord::create(folder.path(), "0123abcd");
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.status().message(), folder.path() + "/0123abcd.job: held by another job");
}

TEST(JobRecord, CleansFoldersAndItself) {
  const Folder folder;
  folder.put("/0123abcd/agent", "x");
  folder.put("/pmi-0123abcd/x", "x");
  folder.put("/0123abce/agent", "x");
  auto record = JobRecord::create(folder.path(), "0123abcd");
  ASSERT_TRUE(record.ok());
  EXPECT_TRUE((*record)->clean(kLimit));
  EXPECT_TRUE((*record)->clean(kLimit));
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/0123abcd"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/pmi-0123abcd"));
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/0123abce"));
  EXPECT_TRUE(job_records(folder.path()).empty());
}

// A record of before the machine was switched on, or of another one, says nothing of processes
// here.
TEST(JobRecord, IgnoresARecordOfAnotherBoot) {
  for (const char* text :
       {"", "regroup-job 1\n", "regroup-job 1\nboot 00000000-0000\n", "\xff\xff"}) {
    const Folder folder;
    folder.put("/0123abcd.job", text);
    EXPECT_EQ(JobRecord::take_over(folder.path() + "/0123abcd.job"), nullptr);
  }
}

TEST(JobRecord, IsTakenOverFromAnIntactRegularFileOnly) {
  const Folder folder;
  const auto record = JobRecord::create(folder.path(), "0123abcd");
  ASSERT_TRUE(record.ok());
  std::filesystem::create_symlink("0123abcd.job", folder.path() + "/0123abce.job");
  std::filesystem::create_directory(folder.path() + "/0123abcf.job");
  folder.put("/short.job", folder.get("/0123abcd.job"));
  for (const char* name : {"/0123abce.job", "/0123abcf.job", "/short.job", "/none0000.job"}) {
    EXPECT_EQ(JobRecord::take_over(folder.path() + name), nullptr) << name;
  }
}

TEST(DeadJobs, EndsProcessesOfDeadJobsOnly) {
  const Folder folder;
  const auto living = JobRecord::create(folder.path(), "0123aaaa");
  {
    const auto dead = JobRecord::create(folder.path(), "0123bbbb");
    ASSERT_TRUE(living.ok() && dead.ok());
  }
  Sleeper of_living("REGROUP_JOB=0123aaaa");
  Sleeper of_dead("REGROUP_JOB=0123bbbb");
  Sleeper longer("REGROUP_JOB=0123bbbb0");
  Sleeper other_name("XREGROUP_JOB=0123bbbb");
  const auto found = end_dead_jobs(folder.path(), kLimit);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].job, "0123bbbb");
  EXPECT_EQ(found[0].killed, 1U);
  EXPECT_TRUE(found[0].ended);
  EXPECT_TRUE(of_dead.ends());
  EXPECT_TRUE(of_living.lives() && longer.lives() && other_name.lives());
  EXPECT_EQ(job_records(folder.path()), std::vector{folder.path() + "/0123aaaa.job"});
  EXPECT_TRUE(end_dead_jobs(folder.path(), kLimit).empty());
}

// An agent for another host writes a record of its own; on its head's host that one sees to it.
TEST(DeadJobs, EndsProcessesOfAHostOnceTheirAgentIsGone) {
  const Folder folder;
  auto head = JobRecord::create(folder.path(), "0123cccc");
  const std::string part = folder.path() + "/0123cccc-12.job";
  {
    const auto agent = JobRecord::create(folder.path(), "0123cccc-12");
    ASSERT_TRUE(head.ok() && agent.ok());
  }
  Sleeper member("REGROUP_JOB=0123cccc");
  folder.put("/0123cccc-12.agent", "");
  folder.put("/pmi-0123cccc-12/0", "");
  EXPECT_TRUE(end_dead_jobs(folder.path(), kLimit).empty());
  EXPECT_TRUE(member.lives());
  EXPECT_TRUE((*head)->clean(kLimit));
  head->reset();
  const auto found = end_dead_jobs(folder.path(), kLimit);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].killed, 1U);
  EXPECT_TRUE(member.ends());
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  for (const char* name : {"0123cccc-", "0123cccc-x", "0123cccc-1-2", "0123ccc-1"}) {
    folder.put(std::string("/") + name + ".job", "regroup-job 1\n");
    EXPECT_EQ(JobRecord::take_over(folder.path() + "/" + name + ".job"), nullptr) << name;
  }
}

// The one that is stopped cannot end by itself; a mark of an older process of its number is not its
// own.
TEST(JobRecord, EndsTheProcessesItHolds) {
  const Folder folder;
  auto record = JobRecord::create(folder.path(), "0123abcd");
  Sleeper stopped("A=2");
  Sleeper running("A=3");
  Sleeper other("A=4");
  ASSERT_TRUE(record.ok() && (*record)->add_process(stopped.pid()).ok());
  folder.put("/0123abcd.job", folder.get("/0123abcd.job") +
                                  fmt::format("process {} 1\n", other.pid()) +
                                  "process\nprocess x\nprocess -1 1\nprocess 999999999 1\n");
  ::kill(stopped.pid(), SIGSTOP);
  EXPECT_TRUE((*record)->clean(kLimit));
  EXPECT_TRUE(stopped.ends());
  record = JobRecord::create(folder.path(), "0123abcd");
  ASSERT_TRUE(record.ok() && (*record)->add_process(running.pid()).ok());
  const base::SystemClock clock;
  const base::TimePoint begin = clock.now();
  EXPECT_TRUE((*record)->clean(std::chrono::milliseconds(200)));  // it does not end by itself
  EXPECT_GE(clock.now() - begin, std::chrono::milliseconds(200));
  EXPECT_TRUE(running.ends());
  EXPECT_TRUE(other.lives());
}

TEST(DeadJobs, RemovesOnlyGroupsThatBearTheJobsName) {
  const Folder folder;
  const Folder groups;
  std::filesystem::create_directory(groups.path() + "/other");
  std::filesystem::create_directory(groups.path() + "/regroup-0123bbbb");
  {
    const auto dead = JobRecord::create(folder.path(), "0123bbbb");
    ASSERT_TRUE(
        dead.ok() &&
        (*dead)->add_cgroups({groups.path() + "/other", groups.path() + "/regroup-0123bbbb"}).ok());
  }
  EXPECT_TRUE(end_dead_jobs(folder.path(), kLimit).empty());  // nothing of it lived
  EXPECT_TRUE(std::filesystem::exists(groups.path() + "/other"));
  EXPECT_FALSE(std::filesystem::exists(groups.path() + "/regroup-0123bbbb"));
  EXPECT_TRUE(job_records(folder.path()).empty());
}

TEST(DeadJobs, AcceptsAMissingFolder) { EXPECT_TRUE(end_dead_jobs("/nowhere", kLimit).empty()); }

}  // namespace
}  // namespace regroup::process
