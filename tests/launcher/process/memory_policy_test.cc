// Which NUMA nodes a member's memory comes from.
#include "launcher/process/memory_policy.h"

#include <gmock/gmock.h>
#include <linux/mempolicy.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace regroup::process {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Nodes 0 to 2 of two processors each, of which this process may use 1 and 2.
class MemoryPolicyTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("memory-policy-" + std::to_string(::getpid()));
    write("proc/self/status", "Name:\tx\nMems_allowed_list:\t1-2\n");
    for (int node = 0; node < 3; ++node)
      write("sys/devices/system/node/node" + std::to_string(node) + "/cpulist",
            std::to_string(2 * node) + "-" + std::to_string(2 * node + 1) + "\n");
  }
  void TearDown() override { fs::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  [[nodiscard]] base::Result<MemoryOrder> order(spec::MemoryPolicy policy,
                                                const std::vector<int>& cores) const {
    return memory_order(policy, cores, root_.string());
  }

  fs::path root_;
};

TEST_F(MemoryPolicyTest, AllowsTheNodesOfTheCores) {
  EXPECT_EQ(order(spec::MemoryPolicy::kKernel, {2})->mode, MPOL_DEFAULT);
  EXPECT_EQ(order(spec::MemoryPolicy::kLocal, {})->mode, MPOL_LOCAL);
  EXPECT_THAT(order(spec::MemoryPolicy::kLocal, {2})->nodes, IsEmpty());
  const auto bind = order(spec::MemoryPolicy::kBind, {2, 5});
  EXPECT_EQ(bind->mode, MPOL_BIND);
  EXPECT_THAT(bind->nodes, ElementsAre(0b110));
  EXPECT_EQ(order(spec::MemoryPolicy::kPrefer, {2, 5})->mode, MPOL_PREFERRED);
  EXPECT_THAT(order(spec::MemoryPolicy::kPrefer, {2, 5})->nodes, ElementsAre(0b10));
  EXPECT_EQ(order(spec::MemoryPolicy::kInterleave, {})->mode, MPOL_INTERLEAVE);
  EXPECT_THAT(order(spec::MemoryPolicy::kInterleave, {})->nodes, ElementsAre(0b110));
}

TEST_F(MemoryPolicyTest, IsBoundedByControlGroups) {
  EXPECT_THAT(order(spec::MemoryPolicy::kBind, {1, 3})->nodes,
              ElementsAre(0b10));  // node 0 is not ours
  EXPECT_THAT(order(spec::MemoryPolicy::kBind, {0}).status().message(), HasSubstr("cpuset.mems"));
  EXPECT_THAT(order(spec::MemoryPolicy::kBind, {}).status().message(),
              HasSubstr("not bound to cores"));
}

}  // namespace
}  // namespace regroup::process
