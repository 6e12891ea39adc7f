// Memory limits in recorded trees: a machine without cgroups, cgroup v1, v2, both at once, and
// damaged files.
#include "base/memory_limit.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace regroup::base {
namespace {

namespace fs = std::filesystem;
constexpr std::uint64_t kMiB = 1 << 20;

class MemoryLimitTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "regroup-memory-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    put("proc/meminfo",
        "MemTotal:       16000000 kB\nMemFree: 1 kB\nMemAvailable:    1024000 kB\n");  // 1000 MiB
  }
  void TearDown() override { fs::remove_all(root_); }
  void put(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void put_v2(const std::string& group, const std::string& max, std::uint64_t current,
              std::uint64_t inactive) {
    const std::string folder = "sys/fs/cgroup" + group;
    put(folder + "/memory.max", max + "\n");
    put(folder + "/memory.current", std::to_string(current) + "\n");
    put(folder + "/memory.stat",
        "anon 1\nfile 2\ninactive_file " + std::to_string(inactive) + "\n");
  }
  MemoryLimit limit() {
    auto found = memory_limit(root_.string());
    EXPECT_TRUE(found.ok()) << found.status().to_string();
    return found.ok() ? *found : MemoryLimit{};
  }

  fs::path root_;
};

TEST_F(MemoryLimitTest, WithoutACgroupTheMachineDecides) {
  EXPECT_EQ(limit().available, 1000 * kMiB);
  EXPECT_EQ(limit().source, "MemAvailable");
}

TEST_F(MemoryLimitTest, V2CountsDroppableCacheAsFree) {
  put("proc/self/cgroup", "0::/jobs/a\n");
  put_v2("/jobs/a", std::to_string(300 * kMiB), 200 * kMiB, 50 * kMiB);
  put_v2("/jobs", "max", 210 * kMiB, 0);
  EXPECT_EQ(limit().available, 150 * kMiB);
  EXPECT_EQ(limit().source, "cgroup /jobs/a: memory.max = 314572800");
}

TEST_F(MemoryLimitTest, ALevelAboveMayBeTighter) {
  put("proc/self/cgroup", "0::/jobs/a/b\n");
  put_v2("/jobs/a/b", "max", 0, 0);
  put_v2("/jobs/a", std::to_string(300 * kMiB), 100 * kMiB, 0);
  put_v2("/jobs", std::to_string(400 * kMiB), 390 * kMiB, 0);
  EXPECT_EQ(limit().available, 10 * kMiB);
  EXPECT_EQ(limit().source, "cgroup /jobs: memory.max = 419430400");
}

TEST_F(MemoryLimitTest, UsageAboveTheLimitLeavesNothing) {
  put("proc/self/cgroup", "0::/a\n");
  put_v2("/a", "1000", 5000, 10);
  EXPECT_EQ(limit().available, 0U);
}

TEST_F(MemoryLimitTest, V1FindsItsControllerAmongOthers) {
  put("proc/self/cgroup", "9:cpu,cpuacct:/x\n4:memory:/jobs/a\n1:name=systemd:/\n0::/\n");
  put("sys/fs/cgroup/memory/jobs/a/memory.limit_in_bytes", std::to_string(64 * kMiB));
  put("sys/fs/cgroup/memory/jobs/a/memory.usage_in_bytes", std::to_string(60 * kMiB));
  put("sys/fs/cgroup/memory/jobs/a/memory.stat", "cache 9\ninactive_file 1048576\n");
  put("sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "9223372036854771712");  // v1's "no limit"
  put("sys/fs/cgroup/memory/jobs/memory.usage_in_bytes", "1");
  EXPECT_EQ(limit().available, 5 * kMiB);
  EXPECT_EQ(limit().source, "cgroup /jobs/a: memory.limit_in_bytes = 67108864");
}

// Inside a container the path of /proc/self/cgroup is the host's, and the container's own limit
// stands in the root of the mount.
TEST_F(MemoryLimitTest, TheMountsRootCountsToo) {
  put("proc/self/cgroup", "4:memory:/docker/123\n0::/\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(30 * kMiB));
  put("sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(10 * kMiB));
  EXPECT_EQ(limit().available, 20 * kMiB);
  EXPECT_EQ(limit().source, "cgroup /: memory.limit_in_bytes = 31457280");
}

TEST_F(MemoryLimitTest, DamagedFilesLimitNothing) {
  put("proc/self/cgroup", "nonsense\n:\n0:\n0::relative\n0::/a\n");
  put_v2("/a", "banana", 5, 0);
  EXPECT_EQ(limit().available, 1000 * kMiB);
}

TEST_F(MemoryLimitTest, WithoutMeminfoItSaysSo) {
  fs::remove(root_ / "proc/meminfo");
  const auto found = memory_limit(root_.string());
  EXPECT_EQ(found.code(), Code::kNotFound);
  EXPECT_NE(found.status().message().find("MemAvailable"), std::string::npos);
}

TEST(MemoryLimit, IsKnownOnThisMachine) {
  const auto found = memory_limit();
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_GT(found->available, 0U);
}

}  // namespace
}  // namespace regroup::base
