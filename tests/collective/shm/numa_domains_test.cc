// Ranks on several NUMA nodes: the node of a member, and the two-level reduction, which must
// produce the bits of the canonical tree.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <random>

#include "collective/shm/bounce_buffer.h"
#include "collective/shm/factory.h"
#include "collective/shm/numa_domains.h"
#include "tests/collective/harness.h"
#include "tests/collective/reference.h"

namespace regroup::collective::testing::shm_numa_domains {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kSmallest = 256 << 10;  // results that are reduced in two levels

TEST(NumaNodes, FindTheNodeOfAllCores) {
  const fs::path folder =
      fs::path(::testing::TempDir()) / ("domains_test." + std::to_string(::getpid()));
  const auto add = [&](const std::string& node, const std::string& core) {
    fs::create_directories(folder / node / core);
  };
  for (int core = 0; core < 4; ++core) {
    add("node" + std::to_string(core / 2), "cpu" + std::to_string(core));
  }
  add("node12", "cpu65");
  add("nodes", "cpu66");
  add("node1", "cpumap");
  const shm::NumaNodes nodes(folder);
  const auto node = [&](std::array<std::uint64_t, 2> cores) { return nodes.node_of(cores); };
  EXPECT_EQ(node({0b0001, 0}), 0);
  EXPECT_EQ(node({0b1100, 0}), 1);
  EXPECT_EQ(node({0, 0b10}), 12);
  EXPECT_EQ(node({0b0110, 0}), std::nullopt);
  EXPECT_EQ(node({0, 0}), std::nullopt);
  EXPECT_EQ(node({0b10000, 0}), std::nullopt);  // the kernel does not show it
  EXPECT_EQ(node({0, 0b100}), std::nullopt);
  EXPECT_EQ(shm::NumaNodes(folder / "none").node_of(std::array<std::uint64_t, 1>{1}), std::nullopt);
  fs::remove_all(folder);
}

TEST(TwoLevels, AreForRanksWhoseSumsAreInTheTree) {
  const auto has_levels = [](std::vector<int> nodes) {
    const auto levels = shm::TwoLevels::make(nodes, 0, shm::kChunk);
    EXPECT_TRUE(levels.ok()) << levels.status().to_string();
    return levels.ok() && levels->has_value();
  };
  EXPECT_TRUE(has_levels({0, 0, 1, 1}));
  EXPECT_TRUE(has_levels({0, 0, 1}));
  EXPECT_TRUE(has_levels({0, 1, 1, 1, 0}));  // ranks 2 and 3
  EXPECT_FALSE(has_levels({0, 0, 0, 0}));    // one node
  EXPECT_FALSE(has_levels({0, 1, 0, 1}));    // each rank is next to one of the other node
  EXPECT_FALSE(has_levels({0, 1, 1, 0}));    // 1 and 2 have no sum in the tree
  EXPECT_FALSE(has_levels({3}));
}

struct Case {
  Ranks kind;
  std::vector<int> nodes;
};

class ShmNumaDomains : public ::testing::TestWithParam<Case> {
 protected:
  [[nodiscard]] std::uint32_t size() const {
    return static_cast<std::uint32_t>(GetParam().nodes.size());
  }

  const shmem::Arena arena_ = make_arena({.slots = size(), .elements = 420'000});
  const proto::World world_ = make_world(1, size());

  [[nodiscard]] std::unique_ptr<Communicator> open(const shmem::Arena& arena, int rank) const {
    const shm::ShmOptions options{.numa_node = GetParam().nodes[static_cast<std::size_t>(rank)]};
    auto comm = shm::make_shm(arena, world_, {0, static_cast<proto::SlotIndex>(rank)}, {}, options);
    EXPECT_TRUE(comm.ok()) << comm.status().to_string();
    return comm.ok() ? std::move(comm).value() : nullptr;
  }
};

// One after the other, at random speeds; inputs change as soon as their owner is done.
TEST_P(ShmNumaDomains, HaveTheBitsOfTheTree) {
  run_ranks(
      arena_, GetParam().kind, static_cast<int>(size()), [&](const shmem::Arena& arena, int rank) {
        const auto comm = open(arena, rank);
        ASSERT_NE(comm, nullptr);
        const auto slot = static_cast<proto::SlotIndex>(rank);
        std::mt19937_64 random(static_cast<std::uint64_t>(rank));
        std::uint64_t k = 0;
        for (const Dtype dtype : kDtypes) {
          if (!is_sampled(k)) {
            ++k;
            continue;
          }
          const Op op = std::array{Op::kSum, Op::kAvg, Op::kMax}[k % 3];
          const std::size_t width = size_of(dtype);
          const std::size_t more = k % 4 == 0 ? 1'200'000 : 40'000;
          const std::size_t elements = (kSmallest + (k * 317'919 + 700'000) % more) / width + k % 3;
          std::vector<Bytes> leaves;
          for (std::uint64_t r = 0; r < size(); ++r)
            leaves.push_back(make_leaf(dtype, elements, 100 * k + r, true));
          const Bytes& own = leaves[static_cast<std::size_t>(rank)];
          const auto in = arena.buffer(slot, 0).subspan(k % 5, own.size());
          const auto out = arena.result(k).subspan(k % 3, own.size());
          std::ranges::copy(own, in.begin());
          dawdle(random);
          const std::uint64_t before = arrivals_in(arena.member_slot(slot).channels[0]);
          const auto status = comm->run(Operation::allreduce(in, out, dtype, op), soon());
          ASSERT_TRUE(status.ok()) << k << ": " << status.to_string();
          const bool rounded = width == 2 && is_floating(dtype);
          const std::uint64_t sync_points =
              arrivals_in(arena.member_slot(slot).channels[0]) - before;
          EXPECT_EQ(sync_points > 2, !rounded) << sync_points << " sync_points, " << k;
          std::ranges::fill(in, std::byte{0x42});
          const Bytes want = reference_fold(dtype, op, leaves, {0, size()});
          ASSERT_TRUE(std::ranges::equal(out, want))
              << k << ": " << name_of(dtype) << " " << name_of(op);
          ++k;
        }
      });
}

// A group of the remaining members has other nodes of the tree.
TEST_P(ShmNumaDomains, GroupsHaveLevelsOfTheirOwn) {
  run_ranks(
      arena_, GetParam().kind, static_cast<int>(size()), [&](const shmem::Arena& arena, int rank) {
        const auto comm = open(arena, rank);
        ASSERT_NE(comm, nullptr);
        const bool first = rank == 0;
        auto group = comm->split(first ? 1 : 0, soon());
        ASSERT_TRUE(group.ok()) << group.status().to_string();
        if (first) return;
        const std::size_t elements = 150'000;
        std::vector<Bytes> leaves;
        for (std::uint64_t r = 1; r < size(); ++r)
          leaves.push_back(make_leaf(Dtype::kFloat32, elements, r, true));
        const Bytes& own = leaves[static_cast<std::size_t>(rank) - 1];
        const auto in = arena.buffer(static_cast<proto::SlotIndex>(rank), 0).first(own.size());
        const auto out = arena.result(1).first(own.size());
        std::ranges::copy(own, in.begin());
        const auto status =
            (*group)->run(Operation::allreduce(in, out, Dtype::kFloat32, Op::kSum), soon());
        ASSERT_TRUE(status.ok()) << status.to_string();
        EXPECT_TRUE(std::ranges::equal(
            out, reference_fold(Dtype::kFloat32, Op::kSum, leaves, {0, size() - 1})));
      });
}

std::vector<Case> cases() {
  std::vector<std::vector<int>> nodes{
      {0, 0, 1, 1}, {0, 0, 1}, {0, 1, 1, 1, 0}, {1, 1, 1, 0, 0, 0}, {2, 2, 1, 1, 0, 0, 5, 5}};
#ifndef __SANITIZE_THREAD__
  std::mt19937_64 random(3);
  while (nodes.size() < 12) {
    std::vector<int> some(3 + random() % 7);
    for (int& node : some) node = static_cast<int>(random() % 3);
    const auto levels = shm::TwoLevels::make(some, 0, shm::kChunk);
    if (levels.ok() && levels->has_value()) nodes.push_back(some);
  }
#endif
  std::vector<Case> all;
  for (const auto& some : nodes) {
    all.push_back({Ranks::kThreads, some});
#ifndef __SANITIZE_THREAD__  // sees no race between processes and makes them slow
    if (all.size() % 3 == 0) all.push_back({Ranks::kProcesses, some});
#endif
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Nodes, ShmNumaDomains, ::testing::ValuesIn(cases()), [](const auto& info) {
  std::string name = info.param.kind == Ranks::kThreads ? "Threads" : "Processes";
  for (const int node : info.param.nodes) name += std::to_string(node);
  return name;
});

}  // namespace
}  // namespace regroup::collective::testing::shm_numa_domains
