// Walks the tree from the root and makes of every node a list of inputs in postfix order: an input,
// and how many sums are complete with it.
#include "collective/cuda/tree_plan.h"

#include <algorithm>
#include <cassert>

#include "collective/reduce/tree_fold.h"
#include "proto/canonical.h"

namespace regroup::collective::cuda {
namespace {

// Whether the kernels for even inputs do these steps. They also keep the last result, for nobody.
bool is_even(std::span<const TreeStep> steps) {
  if (steps.size() != 2 && steps.size() != 4 && steps.size() != 8) return false;
  for (std::uint32_t i = 0; i < steps.size(); ++i) {
    const bool last = i + 1 == steps.size();
    if (steps[i] != (last ? even_step(i) & 0xffff : even_step(i))) return false;
  }
  return true;
}

struct FewKernels {
  Dtype dtype;
  const char* even[3];  // of 2, 4 and 8 inputs
  const char* other;
};
constexpr FewKernels kFewKernels[] = {
    {Dtype::kFloat32,
     {"regroup_even2_float32", "regroup_even4_float32", "regroup_even8_float32"},
     "regroup_few_float32"},
    {Dtype::kFloat16,
     {"regroup_even2_float16", "regroup_even4_float16", "regroup_even8_float16"},
     "regroup_few_float16"},
    {Dtype::kBfloat16,
     {"regroup_even2_bfloat16", "regroup_even4_bfloat16", "regroup_even8_bfloat16"},
     "regroup_few_bfloat16"}};

// `even`: the number of even inputs, or 0.
const char* few_kernel(Dtype dtype, std::size_t even) {
  const FewKernels* row = std::ranges::find(kFewKernels, dtype, &FewKernels::dtype);
  assert(row != std::end(kFewKernels));
  return even == 0 ? row->other : row->even[even / 4];
}

}  // namespace

struct TreePlan::Compiler {
  struct Item {
    std::uint32_t input;
    std::uint32_t sums;  // of a left operand and what ends with this input
  };
  // What gives the sum over a node.
  struct List {
    std::vector<Item> items;
    std::uint32_t pending = 0;  // left operands that wait at the same time
    bool of_partials = false;
  };

  std::span<const proto::Interval> nodes;
  std::vector<std::uint32_t> order;  // numbers of the nodes, from left to right
  std::vector<Launch> launches = {};
  std::size_t next = 0;  // in `order`

  List visit(proto::Interval node) {
    if (nodes[order[next]] == node) return {{{order[next++], 0}}};
    const std::uint32_t middle = proto::canonical_split(node);
    List left = visit({node.begin, middle});
    List right = visit({middle, node.end});
    while (true) {
      if (right.pending + 1 > kMostPending || left.of_partials > right.of_partials) {
        right = fold(right);
      } else if (left.of_partials < right.of_partials) {
        left = fold(left);
      } else if (left.items.size() + right.items.size() > kMostInputs) {
        (left.items.size() < right.items.size() ? right : left) =
            fold(left.items.size() < right.items.size() ? right : left);
      } else {
        return join(std::move(left), right);
      }
    }
  }

  static List join(List left, const List& right) {
    left.pending = std::max(left.pending, right.pending + 1);
    left.items.insert(left.items.end(), right.items.begin(), right.items.end());
    ++left.items.back().sums;
    return left;
  }

  // Makes a launch of the list.
  List fold(const List& list) {
    Launch launch{.of_partials = list.of_partials, .pending = list.pending};
    std::uint32_t waiting = 0;
    for (const Item& item : list.items) {
      assert(item.sums <= waiting && waiting - item.sums < kMostPending);
      launch.inputs.push_back(item.input);
      const std::uint32_t left = waiting - item.sums;
      const bool last = &item == &list.items.back();
      launch.steps.push_back(((1U << item.sums) - 1) << left | (last ? 0U : 0x10000U << left));
      waiting = left + 1;
    }
    launch.even = is_even(launch.steps);
    launches.push_back(std::move(launch));
    return {{{static_cast<std::uint32_t>(launches.size() - 1), 0}}, 0, true};
  }
};

base::Result<TreePlan> TreePlan::compile(std::span<const proto::Interval> nodes,
                                         std::uint32_t leaves) {
  if (const auto fold = reduce::TreeFold::compile(nodes, leaves); !fold.ok()) return fold.status();
  Compiler compiler{.nodes = nodes, .order = {}};
  for (std::uint32_t i = 0; i < nodes.size(); ++i) compiler.order.push_back(i);
  std::ranges::sort(compiler.order, {}, [&](std::uint32_t i) { return nodes[i]; });
  static_cast<void>(compiler.fold(compiler.visit({0, leaves})));
  TreePlan plan;
  plan.launches_ = std::move(compiler.launches);
  plan.leaves_ = leaves;
  return plan;
}

std::size_t TreePlan::partial_size(Dtype dtype) { return std::max(size_of(dtype), sizeof(float)); }

const char* TreePlan::kernel_of(std::size_t number, Dtype dtype, Op op) const {
  const Launch& launch = launches_[number];
  const bool last = number + 1 == launches_.size();
  const bool few = launch.pending <= kFewPending && !(last && op == Op::kAvg);
  const std::size_t even = launch.even ? launch.inputs.size() : 0;
  switch (dtype) {
    case Dtype::kFloat32:
      return few ? few_kernel(dtype, even) : "regroup_tree_float32";
    case Dtype::kFloat64:
      return few ? "regroup_few_float64" : "regroup_tree_float64";
    case Dtype::kFloat16:
      if (launch.of_partials) return last ? "regroup_whole_float16" : "regroup_tree_float32";
      if (!last) return "regroup_partial_float16";
      return few ? few_kernel(dtype, even) : "regroup_tree_float16";
    case Dtype::kBfloat16:
      if (launch.of_partials) return last ? "regroup_whole_bfloat16" : "regroup_tree_float32";
      if (!last) return "regroup_partial_bfloat16";
      return few ? few_kernel(dtype, even) : "regroup_tree_bfloat16";
    case Dtype::kInt32:
    case Dtype::kInt64:
    case Dtype::kInt8:
    case Dtype::kInt16:
    case Dtype::kUint8:
      break;
  }
  return nullptr;
}

TreeArguments TreePlan::arguments_of(std::size_t number, const Memory& memory, Op op) const {
  const Launch& launch = launches_[number];
  const bool last = number + 1 == launches_.size();
  TreeArguments arguments{};
  for (std::size_t i = 0; i < launch.inputs.size(); ++i) {
    const std::uint32_t input = launch.inputs[i];
    arguments.inputs[i] = launch.of_partials ? memory.partials[input] : memory.inputs[input];
    arguments.steps[i] = launch.steps[i];
  }
  arguments.result = last ? memory.result : memory.partials[number];
  arguments.count = memory.count;
  arguments.input_count = static_cast<std::uint32_t>(launch.inputs.size());
  arguments.divisor = last && op == Op::kAvg ? leaves_ : 1;
  return arguments;
}

}  // namespace regroup::collective::cuda
