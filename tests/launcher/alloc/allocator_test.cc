// The Allocator door: this machine, and the fake.
#include "launcher/alloc/allocator.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "launcher/alloc/cpu_quota.h"

namespace regroup::alloc {
namespace {

TEST(ThisMachine, HasASlotForEachCoreOfTheAffinityMask) {
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  auto all = make_this_machine()->allocation();
  ASSERT_TRUE(all.ok()) << all.status().to_string();
  ASSERT_EQ(all->hosts.size(), 1U);
  EXPECT_EQ(all->hosts[0].cores.size(), static_cast<std::size_t>(CPU_COUNT(&before)));
  EXPECT_LE(all->slots(), all->hosts[0].cores.size());
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(all->hosts[0].cores.back(), &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  auto narrowed = make_this_machine()->allocation();
  ASSERT_EQ(::sched_setaffinity(0, sizeof before, &before), 0);
  ASSERT_TRUE(narrowed.ok());
  EXPECT_EQ(narrowed->slots(), 1U);
  EXPECT_EQ(narrowed->hosts[0].cores, std::vector<int>{all->hosts[0].cores.back()});
}

TEST(ThisMachine, ThreadsOfOneCoreAreOneSlot) {
  const std::filesystem::path sysfs = testing::TempDir() + "sysfs-" + std::to_string(::getpid());
  const auto write = [&sysfs](const std::string& name, const std::string& text) {
    const std::filesystem::path path = sysfs / "devices/system/cpu" / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  };
  auto real = make_this_machine()->allocation();
  ASSERT_TRUE(real.ok());
  const std::vector<int>& threads = real->hosts[0].cores;
  for (const int thread : threads)
    write("cpu" + std::to_string(thread) + "/topology/thread_siblings_list", "0-999");
  write("smt/active", "1");
  EXPECT_EQ(make_this_machine(sysfs)->allocation()->slots(), 1U);
  write("smt/active", "0");
  EXPECT_EQ(make_this_machine(sysfs)->allocation()->slots(), threads.size());
  EXPECT_EQ(make_this_machine(sysfs / "nothing")->allocation()->slots(), threads.size());
  std::filesystem::remove_all(sysfs);
}

class Quota : public testing::Test {
 protected:
  ~Quota() override { std::filesystem::remove_all(root_); }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text << "\n";
  }
  [[nodiscard]] Host host() const {
    auto out = make_this_machine("/sys", root_)->allocation();
    EXPECT_TRUE(out.ok());
    return out->hosts.at(0);
  }
  const std::filesystem::path root_ = testing::TempDir() + "quota-" + std::to_string(::getpid());
};

TEST_F(Quota, IsTheLeastOfAllGroupsAboveInVersion2) {
  write("proc/self/cgroup", "0::/jobs/one");
  write("proc/self/mountinfo", "31 1 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw");
  write("sys/fs/cgroup/jobs/one/cgroup.controllers", "cpu memory");
  write("sys/fs/cgroup/jobs/one/cpu.max", "max 100000");
  const Host free = host();
  EXPECT_EQ(free.quota, 0U);
  EXPECT_EQ(cpu_quota(root_), 0U);
  EXPECT_EQ(this_machine_text(free).find("control group"), std::string::npos);
  write("sys/fs/cgroup/jobs/cpu.max", "250000 100000");
  EXPECT_EQ(cpu_quota(root_), 3U);
  write("sys/fs/cgroup/jobs/one/cpu.max", "20000 100000");
  const Host little = host();
  EXPECT_EQ(little.slots, 1U);
  EXPECT_EQ(little.quota, 1U);
  EXPECT_EQ(little.cores, free.cores);
  EXPECT_NE(this_machine_text(little).find("(CPU quota of its control group: 1 processor)"),
            std::string::npos);
  write("sys/fs/cgroup/jobs/one/cpu.max", "99900000 100000");
  write("sys/fs/cgroup/jobs/cpu.max", "max 100000");
  EXPECT_EQ(host().slots, free.slots) << "more than there are cores";
}

TEST_F(Quota, IsReadFromVersion1) {
  write("proc/self/cgroup", "4:cpu,cpuacct:/box");
  write("proc/self/mountinfo", "31 1 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct");
  write("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "-1");
  write("sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "50000");
  EXPECT_EQ(cpu_quota(root_), 0U);
  write("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "60000");
  EXPECT_EQ(cpu_quota(root_), 2U);
}

// Each launch would look for two files in every group of every other hierarchy.
TEST_F(Quota, IsReadInTheHierarchyOfControllerCpuAlone) {
  write("proc/self/cgroup", "4:cpu,cpuacct:/box\n3:memory:/box");
  write("proc/self/mountinfo",
        "31 1 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
        "32 1 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory");
  for (const std::string folder : {"cpu", "memory"})
    write("sys/fs/cgroup/" + folder + "/box/cpu.cfs_period_us", "50000");
  write("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "60000");
  write("sys/fs/cgroup/memory/box/cpu.cfs_quota_us", "10000");
  EXPECT_EQ(cpu_quota(root_), 2U);
}

TEST(FakeAllocator, CountsItsChanges) {
  FakeAllocator fake({1, {{"a", 2, {0, 1}}, {"b", 3, {}}}});
  EXPECT_EQ(fake.allocation()->slots(), 5U);
  fake.change({{"a", 1, {0}}});
  EXPECT_EQ(fake.allocation()->slots(), 1U);
  EXPECT_EQ(fake.allocation()->number, 2U);
}

}  // namespace
}  // namespace regroup::alloc
