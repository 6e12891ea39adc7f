// The operations over several hosts without a network, a mesh or an arena: NetWorld passes their
// messages.
#include "collective/net/collectives.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <random>
#include <set>

#include "collective/net/tree_sum.h"
#include "tests/collective/covers.h"
#include "tests/collective/exchange.h"
#include "tests/collective/net/world.h"

namespace regroup::collective::testing::net_collectives {
namespace {

const std::vector<std::vector<proto::NodeId>> kNodes = {
    {0},          {0, 0},       {0, 1},
    {0, 1, 2},    {0, 1, 2, 3}, {0, 1, 2, 3, 4},
    {0, 0, 1, 1}, {0, 0, 1},    {0, 1, 0, 2, 0, 1, 0}};

std::string name_of(const std::vector<proto::NodeId>& nodes) {
  std::string name = "hosts";
  for (const proto::NodeId node : nodes) name += " " + std::to_string(node);
  return name;
}

// Runs it in all ranks and verifies each; the fault, or empty.
std::string run(const std::vector<proto::NodeId>& nodes, const Shape& shape) {
  NetWorld world(nodes);
  std::list<Exchange> exchanges;
  std::vector<Operation> operations;
  for (int rank = 0; rank < world.size(); ++rank) {
    exchanges.emplace_back(shape, rank, world.size(), 7);
    operations.push_back(exchanges.back().operation());
  }
  std::string fault = world.run([&](net::Exchange& x, int rank) {
    return net::run_collective(x, operations[static_cast<std::size_t>(rank)]);
  });
  for (const Exchange& exchange : exchanges) fault += fault.empty() ? exchange.verify() : "";
  return fault;
}

TEST(NetCollectives, GiveEachRankItsResult) {
  for (const auto& nodes : kNodes) {
    SCOPED_TRACE(name_of(nodes));
    for (const Kind kind : kCollectives) {
      for (const std::size_t elements : {0UL, 1UL, 500UL, 9'000UL}) {
        for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBfloat16}) {
          Shape shape{kind, dtype, Op::kSum, static_cast<int>(nodes.size()) - 1, elements};
          EXPECT_EQ(run(nodes, shape), "") << shape.to_string();
          shape.in_place = true;
          EXPECT_EQ(run(nodes, shape), "") << shape.to_string();
        }
      }
    }
  }
}

// Several chunks, through all ranks of each host.
TEST(NetCollectives, CutLargeOperations) {
  for (const auto& nodes : {kNodes[2], kNodes[3], kNodes[6], kNodes[8]}) {
    SCOPED_TRACE(name_of(nodes));
    for (const Kind kind : kCollectives) {
      const std::size_t elements = kind == Kind::kBroadcast ? 700'001 : 200'001;
      EXPECT_EQ(run(nodes, {kind, Dtype::kInt16, Op::kAvg, 0, elements}), "")
          << collective::name_of(kind);
    }
  }
}

TEST(NetCollectives, OfOneHostSendNothing) {
  NetWorld world({0, 0, 0});
  Bytes data(3 * 8);
  std::vector<Bytes> out(3, Bytes(8));
  const std::string fault = world.run([&](net::Exchange& x, int rank) {
    const auto r = static_cast<std::size_t>(rank);
    return net::run_collective(
        x, Operation::allreduce(std::span(data).subspan(r * 8, 8), out[r], Dtype::kInt64));
  });
  EXPECT_EQ(fault, "");
  EXPECT_EQ(world.messages(), 0U);
}

class TreeSums : public ::testing::Test {
 protected:
  // Host h holds `held[h]`, and every rank of it sums. Returns the fault, or empty.
  std::string run(const std::vector<proto::NodeId>& nodes, std::uint32_t leaves, std::size_t bytes,
                  Dtype dtype, const std::vector<std::vector<Sealed>>& held) {
    NetWorld world(nodes);
    results_.assign(held.size(), Bytes(bytes));
    std::list<net::TreeSum> sums;
    for (const proto::NodeId node : nodes) {
      net::TreeNodes list;
      net::PartialSums inputs;
      for (const Sealed& part : held[node]) {
        list.push_back(part.leaves);
        inputs.push_back(part.sum.data());
      }
      auto here = net::plan_merge(std::span(&list, 1), leaves);
      if (!here.ok()) return here.status().message();
      sums.push_back({leaves, results_[node], collective::net::Arithmetic::of(dtype, Op::kSum),
                      blocks_, 1, std::move(*here), std::move(inputs)});
    }
    return world.run([&](net::Exchange& x, int rank) {
      return net::tree_sum(x, *std::next(sums.begin(), rank));
    });
  }

  const SumBlocks blocks_{};
  std::vector<Bytes> results_;  // by host
};

TEST_F(TreeSums, HaveTheSameBitsWhichHostHoldsWhat) {
  std::mt19937_64 random(1);
  for (const auto& nodes : kNodes) {
    if (std::ranges::max(nodes) == 0) continue;  // shm sums those
    SCOPED_TRACE(name_of(nodes));
    for (std::uint32_t count = 1; count <= 20; ++count) {
      const Dtype dtype = kDtypes[random() % std::size(kDtypes)];
      std::vector<Bytes> leaves;
      const std::size_t elements = 1 + random() % 500;
      for (std::uint32_t i = 0; i < count; ++i)
        leaves.push_back(make_leaf(dtype, elements, random(), true));
      std::vector<std::vector<Sealed>> held(std::ranges::max(nodes) + 1U);
      for (Sealed& part : seal(dtype, leaves, random))
        held[random() % held.size()].push_back(std::move(part));
      ASSERT_EQ(run(nodes, count, leaves[0].size(), dtype, held), "");
      const Bytes want = reference_sum(dtype, leaves, {0, count});
      for (const Bytes& result : results_) ASSERT_TRUE(result == want) << count << " leaves";
    }
  }
}

TEST_F(TreeSums, FailIfTheHostsTogetherLackALeaf) {
  const std::vector<std::vector<Sealed>> held = {{{{0, 1}, Bytes(8)}}, {{{2, 3}, Bytes(8)}}};
  EXPECT_EQ(run({0, 1}, 3, 8, Dtype::kInt64, held),
            "sum: the hosts together hold [0,1) [2,3); expected each of 3 leaves once");
}

}  // namespace
}  // namespace regroup::collective::testing::net_collectives
