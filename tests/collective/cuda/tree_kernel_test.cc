// The device kernels, compiled for this processor, give the bits of TreeFold: any number of leaves,
// any nodes, all types, numbers that are not ordinary, any count, any grid.
#include "collective/cuda/tree_kernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "collective/cuda/host_kernels.h"
#include "collective/cuda/tree_plan.h"
#include "collective/reduce/tree_fold.h"
#include "tests/collective/harness.h"
#include "tests/collective/reference.h"

namespace regroup::collective::testing::tree_kernel {
namespace {

using proto::Interval;

constexpr Dtype kFloats[] = {Dtype::kFloat32, Dtype::kFloat64, Dtype::kFloat16, Dtype::kBfloat16};
constexpr std::size_t kGuard = 64;  // bytes after a result that must stay as they were
constexpr std::byte kPoison{0xa5};

struct Inputs {
  std::vector<Interval> nodes;
  std::uint32_t leaves;
  std::vector<Bytes> sums;

  [[nodiscard]] std::vector<const std::byte*> pointers() const {
    std::vector<const std::byte*> out;
    for (const Bytes& sum : sums) out.push_back(sum.data());
    return out;
  }
};

Inputs inputs_over(std::vector<Interval> nodes, std::uint32_t leaves, Dtype dtype,
                   std::size_t count, std::mt19937_64& random) {
  Inputs inputs{std::move(nodes), leaves, {}};
  for (std::size_t i = 0; i < inputs.nodes.size(); ++i)
    inputs.sums.push_back(make_leaf(dtype, count, random(), true));
  return inputs;
}

Bytes folded(const Inputs& inputs, Dtype dtype, Op op) {
  Bytes out(inputs.sums[0].size());
  const auto fold = reduce::TreeFold::compile(inputs.nodes, inputs.leaves);
  EXPECT_TRUE(fold.ok()) << fold.status().to_string();
  fold->run(inputs.pointers(), {0, out.size()}, out.data(), dtype, op, reduce::Stores::kPlain);
  return out;
}

// The result of the planned launches, or an empty one if they wrote beyond their memory.
Bytes launched(const Inputs& inputs, Dtype dtype, Op op, std::uint32_t blocks,
               std::uint32_t threads) {
  const auto plan = cuda::TreePlan::compile(inputs.nodes, inputs.leaves);
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  const std::size_t count = inputs.sums[0].size() / size_of(dtype);
  std::vector<const void*> sums;
  for (const Bytes& sum : inputs.sums) sums.push_back(sum.data());
  std::vector<Bytes> rooms(plan->partial_count(),
                           Bytes(count * cuda::TreePlan::partial_size(dtype) + kGuard, kPoison));
  std::vector<void*> partials;
  for (Bytes& room : rooms) partials.push_back(room.data());
  rooms.emplace_back(inputs.sums[0].size() + kGuard, kPoison);
  const cuda::TreePlan::Memory memory{sums, partials, rooms.back().data(), count};
  for (std::size_t i = 0; i < plan->launches().size(); ++i) {
    const cuda::TreeArguments arguments = plan->arguments_of(i, memory, op);
    cuda::find_host_kernel(plan->kernel_of(i, dtype, op))->run(&arguments, blocks, threads);
  }
  for (const Bytes& room : rooms) {
    if (std::count(room.end() - kGuard, room.end(), kPoison) != kGuard) return {};
  }
  rooms.back().resize(inputs.sums[0].size());
  return rooms.back();
}

TEST(TreeKernel, SumsAnyNodesOfAnyNumberOfLeaves) {
  std::mt19937_64 random(1);
  for (const Dtype dtype : kFloats) {
    for (std::uint32_t leaves = 1; leaves <= 300; ++leaves) {
      for (const Op op : {Op::kSum, Op::kAvg}) {
        std::vector<Interval> nodes = random_cover(leaves, random);
        if (random() % 2 == 0) {
          nodes.clear();
          for (std::uint32_t i = 0; i < leaves; ++i) nodes.push_back({i, i + 1});
        }
        const Inputs inputs =
            inputs_over(std::move(nodes), leaves, dtype, 1 + random() % 70, random);
        const auto blocks = static_cast<std::uint32_t>(1 + random() % 3);
        const auto threads = static_cast<std::uint32_t>(1 + random() % 9);
        ASSERT_EQ(launched(inputs, dtype, op, blocks, threads), folded(inputs, dtype, op))
            << name_of(op) << " of " << leaves << " leaves of " << name_of(dtype) << " in "
            << inputs.nodes.size() << " nodes, " << blocks << " blocks of " << threads
            << " threads, " << inputs.sums[0].size() << " bytes";
      }
    }
  }
}

// The kernels for even inputs, with counts around what a thread and a block take.
TEST(TreeKernel, SumsEvenInputs) {
  std::mt19937_64 random(6);
  for (const Dtype dtype : kFloats) {
    for (const std::uint32_t leaves : {2U, 4U, 8U}) {
      for (const std::size_t count : {1, 3, 4, 8, 9, 15, 16, 17, 255, 1024, 1033}) {
        std::vector<Interval> nodes;
        for (std::uint32_t i = 0; i < leaves; ++i) nodes.push_back({i, i + 1});
        const Inputs inputs = inputs_over(std::move(nodes), leaves, dtype, count, random);
        for (const std::uint32_t blocks : {1U, 2U, 5U})
          ASSERT_EQ(launched(inputs, dtype, Op::kSum, blocks, 8), folded(inputs, dtype, Op::kSum))
              << leaves << " leaves of " << count << " " << name_of(dtype);
      }
    }
  }
}

// All values of a 16-bit float, alone and added to others.
TEST(TreeKernel, WidensAndRoundsEveryValue) {
  for (const Dtype dtype : {Dtype::kFloat16, Dtype::kBfloat16}) {
    Inputs inputs{{{0, 1}}, 1, {Bytes(2 * 65536)}};
    for (std::uint32_t i = 0; i < 65536; ++i) {
      const auto bits = static_cast<std::uint16_t>(i);
      std::memcpy(&inputs.sums[0][2 * std::size_t{i}], &bits, 2);
    }
    EXPECT_EQ(launched(inputs, dtype, Op::kSum, 4, 64), folded(inputs, dtype, Op::kSum));
    std::mt19937_64 random(2);
    inputs.nodes = {{1, 2}, {2, 3}, {0, 1}};
    inputs.leaves = 3;
    for (int i = 0; i < 2; ++i) inputs.sums.push_back(make_leaf(dtype, 65536, random(), true));
    EXPECT_EQ(launched(inputs, dtype, Op::kSum, 4, 64), folded(inputs, dtype, Op::kSum));
    EXPECT_EQ(launched(inputs, dtype, Op::kAvg, 4, 64), folded(inputs, dtype, Op::kAvg));
  }
}

TEST(TreeKernel, WritesOverAnInput) {
  std::mt19937_64 random(3);
  Inputs inputs = inputs_over({{2, 3}, {0, 2}}, 3, Dtype::kFloat32, 103, random);
  const Bytes want = folded(inputs, Dtype::kFloat32, Op::kSum);
  const auto plan = cuda::TreePlan::compile(inputs.nodes, inputs.leaves);
  const void* sums[] = {inputs.sums[0].data(), inputs.sums[1].data()};
  const cuda::TreeArguments arguments =
      plan->arguments_of(0, {sums, {}, inputs.sums[0].data(), 103}, Op::kSum);
  cuda::find_host_kernel(plan->kernel_of(0, Dtype::kFloat32, Op::kSum))->run(&arguments, 2, 5);
  EXPECT_EQ(inputs.sums[0], want);
}

// Nodes whose left operands all wait for the last input: the most that the tree can have.
TEST(TreePlan, SumsAPathFromTheRoot) {
  std::mt19937_64 random(4);
  constexpr std::uint32_t kLeaves = proto::kMaxShards - 1;
  std::vector<Interval> nodes;
  for (std::uint32_t at = 0; at < kLeaves;) {
    const std::uint32_t size = std::bit_floor(kLeaves - at);
    nodes.push_back({at, at + size});
    at += size;
  }
  ASSERT_EQ(nodes.size(), 14U);
  for (const Dtype dtype : kFloats) {
    const Inputs inputs = inputs_over(nodes, kLeaves, dtype, 33, random);
    EXPECT_EQ(launched(inputs, dtype, Op::kSum, 1, 8), folded(inputs, dtype, Op::kSum));
  }
}

TEST(TreePlan, FitsTheKernelForAnyNumberOfLeaves) {
  for (std::uint32_t leaves : {1U, 2U, 127U, 128U, 129U, 239U, 240U, 241U, 256U, 257U, 1000U, 4099U,
                               proto::kMaxShards - 1, proto::kMaxShards}) {
    std::vector<Interval> nodes;
    for (std::uint32_t i = 0; i < leaves; ++i) nodes.push_back({i, i + 1});
    const auto plan = cuda::TreePlan::compile(nodes, leaves);
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(plan->launches().size() == 1, leaves <= cuda::kMostInputs) << leaves;
    for (const cuda::TreePlan::Launch& launch : plan->launches()) {
      ASSERT_LE(launch.inputs.size(), cuda::kMostInputs);
      for (const cuda::TreeStep step : launch.steps)
        ASSERT_LT(step >> 16, 1U << cuda::kMostPending);
    }
  }
}

TEST(TreePlan, NamesTheKernelThatIsEnough) {
  const struct {
    std::uint32_t leaves;
    Dtype dtype;
    Op op;
    const char* kernel;
  } rows[] = {{1, Dtype::kBfloat16, Op::kSum, "regroup_few_bfloat16"},
              {2, Dtype::kFloat32, Op::kSum, "regroup_even2_float32"},
              {3, Dtype::kFloat32, Op::kSum, "regroup_few_float32"},
              {4, Dtype::kFloat16, Op::kSum, "regroup_even4_float16"},
              {8, Dtype::kBfloat16, Op::kSum, "regroup_even8_bfloat16"},
              {8, Dtype::kFloat64, Op::kSum, "regroup_few_float64"},
              {16, Dtype::kBfloat16, Op::kSum, "regroup_few_bfloat16"},
              {31, Dtype::kBfloat16, Op::kSum, "regroup_few_bfloat16"},
              {32, Dtype::kBfloat16, Op::kSum, "regroup_tree_bfloat16"},
              {2, Dtype::kBfloat16, Op::kAvg, "regroup_tree_bfloat16"}};
  for (const auto& row : rows) {
    std::vector<Interval> nodes;
    for (std::uint32_t i = 0; i < row.leaves; ++i) nodes.push_back({i, i + 1});
    const auto plan = cuda::TreePlan::compile(nodes, row.leaves);
    EXPECT_STREQ(plan->kernel_of(0, row.dtype, row.op), row.kernel) << row.leaves;
  }
  // Four inputs of which three left operands wait at the same time.
  const auto uneven =
      cuda::TreePlan::compile(std::vector<Interval>{{0, 4}, {4, 6}, {6, 7}, {7, 8}}, 8);
  EXPECT_STREQ(uneven->kernel_of(0, Dtype::kFloat32, Op::kSum), "regroup_few_float32");
  EXPECT_EQ(cuda::TreePlan::compile(std::vector<Interval>{{0, 1}}, 1)
                ->kernel_of(0, Dtype::kInt32, Op::kSum),
            nullptr);
}

TEST(TreePlan, RefusesWhatIsNoCover) {
  const auto plan = cuda::TreePlan::compile(std::vector<Interval>{{0, 2}, {2, 5}}, 5);
  EXPECT_EQ(plan.code(), base::Code::kInvalidArgument);
}

TEST(TreePlan, PlansEvenSteps) {
  for (std::uint32_t inputs : {1U, 2U, 4U, 8U, 16U, 32U, 64U, 128U}) {
    std::vector<Interval> nodes;
    for (std::uint32_t i = 0; i < inputs; ++i) nodes.push_back({4 * i, 4 * i + 4});
    const auto plan = cuda::TreePlan::compile(nodes, 4 * inputs);
    for (std::uint32_t i = 0; i + 1 < inputs; ++i)
      EXPECT_EQ(plan->launches()[0].steps[i], cuda::even_step(i)) << i;
    EXPECT_EQ(plan->launches()[0].steps[inputs - 1], cuda::even_step(inputs - 1) & 0xffff);
  }
}

template <class Element, class Shape>
Bytes shaped(const Inputs& inputs, Dtype dtype, std::uint32_t blocks, std::uint32_t threads) {
  const auto plan = cuda::TreePlan::compile(inputs.nodes, inputs.leaves);
  std::vector<const void*> sums;
  for (const Bytes& sum : inputs.sums) sums.push_back(sum.data());
  Bytes out(inputs.sums[0].size(), kPoison);
  const cuda::TreeArguments arguments =
      plan->arguments_of(0, {sums, {}, out.data(), out.size() / size_of(dtype)}, Op::kSum);
  for (std::uint32_t block = 0; block < blocks; ++block) {
    for (std::uint32_t thread = 0; thread < threads; ++thread)
      cuda::Tree<Element, Element, Shape>::run(arguments, {block, blocks, thread, threads});
  }
  return out;
}

template <class Element, int kColumn>
void expect_equal_shapes(Dtype dtype) {
  std::mt19937_64 random(5);
  for (const std::size_t count : {1, 7, 64, 1000, 1023}) {
    const Inputs four = inputs_over({{0, 2}, {2, 4}, {4, 6}, {6, 8}}, 8, dtype, count, random);
    const Bytes want = folded(four, dtype, Op::kSum);
    using Even = cuda::TreeShape<kColumn, 1, 4, 2, 4>;
    using TwoColumns = cuda::TreeShape<kColumn, 2, 4, 2, 4>;
    using Batches = cuda::TreeShape<kColumn, 2, 2, 2, 4>;
    using Small = cuda::TreeShape<kColumn / 2, 3, 3, 4>;
    EXPECT_EQ((shaped<Element, Even>(four, dtype, 2, 7)), want);
    EXPECT_EQ((shaped<Element, TwoColumns>(four, dtype, 2, 7)), want);
    EXPECT_EQ((shaped<Element, Batches>(four, dtype, 3, 5)), want);
    EXPECT_EQ((shaped<Element, Small>(four, dtype, 1, 13)), want);
  }
}

TEST(TreeKernel, GivesTheSameBitsInAnyShape) {
  expect_equal_shapes<cuda::Float32, 4>(Dtype::kFloat32);
  expect_equal_shapes<cuda::Float64, 2>(Dtype::kFloat64);
  expect_equal_shapes<cuda::Float16, 8>(Dtype::kFloat16);
  expect_equal_shapes<cuda::Bfloat16, 8>(Dtype::kBfloat16);
}

}  // namespace
}  // namespace regroup::collective::testing::tree_kernel
