// Groups are found on machines of both versions, and where only a part of a hierarchy is mounted.
#include "launcher/process/cgroup_tree.h"

#include <gtest/gtest.h>

#include "tests/launcher/process/recorded.h"

namespace regroup::process {
namespace {

TEST(CgroupTree, FindsTheGroupOfASessionOfVersion2) {
  const Folder folder;
  put_session_v2(folder);
  const auto branches = own_cgroups(folder.path());
  ASSERT_EQ(branches.size(), 1U);
  EXPECT_EQ(branches[0].version, 2);
  EXPECT_EQ(branches[0].mount, folder.path() + "/sys/fs/cgroup");
  EXPECT_EQ(branches[0].own,
            folder.path() + "/sys/fs/cgroup/user.slice/user-1000.slice/session-2.scope");
  EXPECT_TRUE(branches[0].cpu && branches[0].memory);
  EXPECT_FALSE(branches[0].freezer);
}

// Both versions at once, as on many machines of 2018 to 2022.
TEST(CgroupTree, FindsEachControllerOfVersion1) {
  const Folder folder;
  folder.put("/proc/self/cgroup",
             "11:cpu,cpuacct:/user.slice\n10:memory:/user.slice/session-3.scope\n4:freezer:/\n"
             "1:name=systemd:/user.slice/session-3.scope\n0::/user.slice/session-3.scope\n");
  folder.put(
      "/proc/self/mountinfo",
      "28 25 0:24 / /sys/fs/cgroup/unified rw shared:5 - cgroup2 cgroup rw,nsdelegate\n"
      "29 25 0:25 / /sys/fs/cgroup/systemd rw shared:6 - cgroup cgroup rw,xattr,name=systemd\n"
      "33 25 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:10 - cgroup cgroup rw,cpu,cpuacct\n"
      "34 25 0:30 / /sys/fs/cgroup/memory rw shared:11 - cgroup cgroup rw,memory\n"
      "35 25 0:31 / /sys/fs/cgroup/with\\040blank rw shared:12 - cgroup cgroup rw,freezer\n");
  folder.put("/sys/fs/cgroup/unified/user.slice/session-3.scope/cgroup.controllers", "\n");
  const auto branches = own_cgroups(folder.path());
  ASSERT_EQ(branches.size(), 5U);
  const std::string base = folder.path() + "/sys/fs/cgroup";
  EXPECT_EQ(branches[0].version, 2);
  EXPECT_FALSE(branches[0].cpu || branches[0].memory);
  EXPECT_EQ(branches[2].own, base + "/cpu,cpuacct/user.slice");
  EXPECT_TRUE(branches[2].cpu);
  EXPECT_EQ(branches[3].own, base + "/memory/user.slice/session-3.scope");
  EXPECT_TRUE(branches[3].memory);
  EXPECT_EQ(branches[4].own, base + "/with blank");
  EXPECT_TRUE(branches[4].freezer);
}

constexpr struct {
  const char* path;  // of our group
  const char* top;   // of the mount
  const char* own;   // folder; nullptr: not to be seen
} kMounts[] = {
    {"/", "/", ""},
    {"/a/b", "/", "/a/b"},
    {"/docker/1f", "/docker/1f", ""},
    {"/docker/1f/job", "/docker/1f", "/job"},
    {"/docker/1f0", "/docker/1f", nullptr},
    {"/../../elsewhere", "/", nullptr},
};

TEST(CgroupTree, SeesTheMountedPartOfAHierarchy) {
  for (const auto& [path, top, own] : kMounts) {
    const Folder folder;
    folder.put("/proc/self/cgroup", std::string("4:memory:") + path + "\n");
    folder.put("/proc/self/mountinfo",
               std::string("34 25 0:30 ") + top + " /cg/memory rw - cgroup cgroup rw,memory\n");
    const auto branches = own_cgroups(folder.path());
    ASSERT_EQ(branches.size(), own == nullptr ? 0U : 1U) << path << " in " << top;
    if (own != nullptr) {
      EXPECT_EQ(branches[0].own, folder.path() + "/cg/memory" + own);
    }
  }
}

TEST(CgroupTree, FindsNothingInOtherText) {
  for (const char* text :
       {"", "\n", "garbage", "1 2 3 - cgroup", "34 25 0:30 / /x rw - cgroup\n", "- - - - -"}) {
    const Folder folder;
    folder.put("/proc/self/cgroup", text);
    folder.put("/proc/self/mountinfo", text);
    EXPECT_TRUE(own_cgroups(folder.path()).empty()) << text;
  }
}

}  // namespace
}  // namespace regroup::process
