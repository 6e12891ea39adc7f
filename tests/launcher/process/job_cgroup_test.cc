// Limits as version 2 wants them, on a recorded tree; groups of this machine's kernel, where they
// can be made.
#include "launcher/process/job_cgroup.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <vector>

#include "launcher/process/cgroup_tree.h"
#include "launcher/process/limiter.h"
#include "tests/launcher/process/recorded.h"

namespace regroup::process {
namespace {

constexpr std::chrono::seconds kEndLimit{5};
const std::string kUser = "/sys/fs/cgroup/user.slice/user-1000.slice";
const std::string kMember = kUser + "/regroup-0000abcd/member-0";

TEST(JobCgroup, LimitsMembersBelowTheNearestDelegatedGroup) {
  const Folder folder;
  put_session_v2(folder);
  put_groups_v2(folder, kUser);
  auto group = JobCgroup::make("0000abcd", {true, true}, folder.path());
  ASSERT_TRUE(group.ok()) << group.status().to_string();
  EXPECT_EQ(group->folders(), std::vector{folder.path() + kUser + "/regroup-0000abcd"});
  EXPECT_EQ(folder.get(kUser + "/regroup-0000abcd/cgroup.subtree_control"), "+cpu +memory");
  auto cgroup_procs = group->add(0, {1.5, 64 << 20});
  ASSERT_TRUE(cgroup_procs.ok()) << cgroup_procs.status().to_string();
  EXPECT_EQ(cgroup_procs->size(), 1U);
  EXPECT_EQ(folder.get(kMember + "/cpu.max"), "150000 100000");
  EXPECT_EQ(folder.get(kMember + "/memory.max"), "67108864");
  EXPECT_EQ(folder.get(kMember + "/memory.swap.max"), "0");
  EXPECT_EQ(folder.get(kMember + "/memory.oom.group"), "1");
  EXPECT_EQ(group->memory_kills(0), 2U);
  EXPECT_EQ(group->memory_kills(1), 0U);
}

TEST(JobCgroup, MakesNoGroupForMembersWithoutALimit) {
  const Folder folder;
  put_session_v2(folder);
  put_groups_v2(folder, kUser);
  auto group = JobCgroup::make("0000abcd", {true, true}, folder.path());
  ASSERT_TRUE(group.ok() && group->add(0, {0.001, 0}).ok());
  EXPECT_EQ(folder.get(kMember + "/cpu.max"), "1000 100000");  // the kernel's least
  EXPECT_EQ(folder.get(kMember + "/memory.max"), "");
}

TEST(JobCgroup, NamesTheGroupThatDelegatesNoController) {
  const Folder folder;
  put_session_v2(folder);
  folder.put(kUser + "/cgroup.subtree_control", "pids\n");
  const auto group = JobCgroup::make("0000abcd", {false, true}, folder.path());
  ASSERT_FALSE(group.ok());
  EXPECT_EQ(group.status().message(), "no control group above " + folder.path() + kUser +
                                          "/session-2.scope delegates +memory");
}

TEST(JobCgroup, NamesTheMissingController) {
  const Folder folder;
  folder.put("/proc/self/cgroup", "4:memory:/\n");
  folder.put("/proc/self/mountinfo", "34 25 0:30 / /cg rw - cgroup cgroup rw,memory\n");
  std::filesystem::create_directories(folder.path() + "/cg");
  const auto group = JobCgroup::make("0000abcd", {true, true}, folder.path());
  ASSERT_FALSE(group.ok());
  EXPECT_EQ(group.status().message(), "no control group has the controller cpu");
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/cg/regroup-0000abcd"));
}

TEST(Limiter, FallsBackOnceForTheWholeJob) {
  const Folder folder;  // a machine without control groups
  Limiter limiter("0000abcd", nullptr, folder.path());
  EXPECT_TRUE(limiter.restrain(0, {}).said.empty());
  const Restraint first = limiter.restrain(1, {1, 64 << 20});
  EXPECT_EQ(first.said,
            "limits are not enforced by control groups (no control group has the controller "
            "memory): cores "
            "by affinity, memory by RLIMIT_DATA of each process");
  EXPECT_EQ(first.data_bytes, 64U << 20U);
  EXPECT_EQ(first.cores.size(), 1U);
  EXPECT_TRUE(first.cgroup_procs.empty());
  const Restraint second = limiter.restrain(2, {0.5, 0});
  EXPECT_TRUE(second.said.empty());
  EXPECT_EQ(second.data_bytes, 0U);
  EXPECT_EQ(second.cores.size(), 1U);
  EXPECT_EQ(limiter.exceeded_memory(1), 0U);
}

TEST(Limiter, NamesTheMemberThatExceededItsMemory) {
  const Folder folder;
  put_session_v2(folder);
  put_groups_v2(folder, kUser);
  Limiter limiter("0000abcd", nullptr, folder.path());
  EXPECT_EQ(limiter.restrain(0, {0, 64 << 20}).cgroup_procs.size(), 1U);
  EXPECT_EQ(limiter.exceeded_memory(0), 64U << 20U);
  EXPECT_EQ(limiter.exceeded_memory(0), 0U);  // said once
}

// A group and one below it, in each a stopped process with a child.
class RealGroup {
 public:
  explicit RealGroup(const std::string& parent)
      : folder_(parent + "/regroup-test" + std::to_string(::getpid())) {
    made_ = ::mkdir(folder_.c_str(), 0755) == 0 && ::mkdir((folder_ + "/below").c_str(), 0755) == 0;
    if (!made_) return;
    for (const std::string& group : {folder_, folder_ + "/below"}) {
      const pid_t pid = ::fork();
      if (pid == 0) live_in(group);
      int status = 0;
      EXPECT_TRUE(::waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status)) << group;
      children_.push_back(pid);
    }
  }
  ~RealGroup() { EXPECT_TRUE(killed() || !made_); }
  RealGroup(const RealGroup&) = delete;
  RealGroup& operator=(const RealGroup&) = delete;

  // Not ended otherwise. The kernel takes a process out of its group a moment before its end.
  bool killed() {
    bool all = true;
    for (const pid_t pid : children_) {
      int status = 0;
      const auto end = std::chrono::steady_clock::now() + kEndLimit;
      while (::waitpid(pid, &status, WNOHANG) == 0 && std::chrono::steady_clock::now() < end)
        ::usleep(1000);
      all = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && all;
      ::kill(pid, SIGKILL);
    }
    children_.clear();
    return all;
  }
  [[nodiscard]] bool made() const { return made_; }
  [[nodiscard]] const std::string& folder() const { return folder_; }

 private:
  [[noreturn]] static void live_in(const std::string& group) {
    const base::Fd procs(::open((group + "/cgroup.procs").c_str(), O_WRONLY));
    if (::write(procs.get(), "0", 1) != 1) ::_exit(1);
    const pid_t child = ::fork();
    if (child > 0) ::raise(SIGSTOP);
    for (;;) ::pause();
  }

  std::string folder_;
  bool made_ = false;
  std::vector<pid_t> children_;
};

// cgroup.kill under version 2, the freezer under version 1.
TEST(EndCgroups, KillsAndRemovesGroupsOfThisKernel) {
  int tried = 0;
  for (const CgroupBranch& branch : own_cgroups()) {
    if (branch.version != 2 && !branch.freezer && !branch.memory) continue;
    RealGroup group(branch.own);
    if (!group.made()) continue;
    ++tried;
    EXPECT_FALSE(end_cgroups({group.folder()}, base::Duration::zero()));
    EXPECT_TRUE(end_cgroups({group.folder()}, kEndLimit)) << group.folder();
    EXPECT_TRUE(group.killed()) << group.folder();
    EXPECT_NE(::access(group.folder().c_str(), F_OK), 0);
  }
  if (tried == 0) GTEST_SKIP() << "no control groups can be made here";
}

TEST(EndCgroups, TreatsAMissingGroupAsEnded) {
  EXPECT_TRUE(end_cgroups({"/sys/fs/cgroup/regroup-nothing"}, base::Duration::zero()));
}

}  // namespace
}  // namespace regroup::process
