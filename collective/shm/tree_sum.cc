// The compiler of the canonical tree and the loop that runs its program.
#include "collective/shm/tree_sum.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "core/canonical.h"

namespace regroup::collective {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kBlock = 4096;
constexpr std::size_t kDepth = std::bit_width(core::kMaxShards) + 1;  // of the tree, so of the scratch stack

// Elements in memory of any alignment that holds anything. Unsigned, because integer sums wrap.
struct Float32 {
  using Value [[gnu::aligned(1), gnu::may_alias]] = float;
};
struct Float64 {
  using Value [[gnu::aligned(1), gnu::may_alias]] = double;
};
struct Int32 {
  using Value [[gnu::aligned(1), gnu::may_alias]] = std::uint32_t;
};
struct Int64 {
  using Value [[gnu::aligned(1), gnu::may_alias]] = std::uint64_t;
};

// `to` may be `left` or `right`.
template <class Element>
void add(std::byte* to, const std::byte* left, const std::byte* right, std::size_t bytes) {
  using Value = typename Element::Value;
  // Not auto, which would drop the attributes of Value.
  Value* sum = reinterpret_cast<Value*>(to);
  const Value* a = reinterpret_cast<const Value*>(left);
  const Value* b = reinterpret_cast<const Value*>(right);
  const std::size_t count = bytes / sizeof(Value);
#ifndef __clang__
#pragma GCC ivdep
#endif
  for (std::size_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
}

}  // namespace

ByteRange slice_of(std::size_t bytes, int index, int count) {
  const std::size_t lines = (bytes + kLine - 1) / kLine;
  auto edge = [&](std::size_t i) {
    return std::min(bytes, lines * i / static_cast<std::size_t>(count) * kLine);
  };
  return {edge(static_cast<std::size_t>(index)), edge(static_cast<std::size_t>(index) + 1)};
}

// Walks the tree from the root; stops at nodes that are inputs.
struct TreeSum::Compiler {
  std::span<const core::Interval> nodes;
  std::vector<std::uint32_t> order;  // of the nodes, from left to right
  std::size_t next = 0;              // in `order`
  std::vector<Addition> additions = {};
  bool failed = false;

  // Leaves the sum over `node` in an input or in scratch[depth].
  Block visit(core::Interval node, std::uint32_t depth) {
    failed = failed || next == order.size() || nodes[order[next]].begin != node.begin;
    if (failed) return {};
    if (nodes[order[next]] == node) return {true, order[next++]};
    if (node.size() < 2) return failed = true, Block{};
    const std::uint32_t middle = core::canonical_split(node);
    const Block left = visit({node.begin, middle}, depth);
    const Block right = visit({middle, node.end}, left.is_input ? depth : depth + 1);
    additions.push_back({depth, left, right});
    return {false, depth};
  }
};

core::Result<TreeSum> TreeSum::compile(std::span<const core::Interval> nodes, std::uint32_t leaves) {
  Compiler compiler{.nodes = nodes, .order = {}};
  for (std::uint32_t i = 0; i < nodes.size(); ++i) compiler.order.push_back(i);
  std::ranges::sort(compiler.order, {}, [&](std::uint32_t i) { return nodes[i]; });
  TreeSum program;
  if (leaves > 0 && leaves <= core::kMaxShards) program.sum_ = compiler.visit({0, leaves}, 0);
  if (compiler.failed || compiler.next == 0 || compiler.next != nodes.size()) {
    std::string list;
    for (std::uint32_t i : compiler.order) list += fmt::format(" [{},{})", nodes[i].begin, nodes[i].end);
    return core::invalid_argument(
        fmt::format("sum: these are not disjoint canonical nodes that cover {} leaves:{}", leaves, list));
  }
  program.additions_ = std::move(compiler.additions);
  return program;
}

template <class Element>
void TreeSum::run_as(std::span<const std::byte* const> inputs, ByteRange range, std::byte* out,
                     Stores stores) const {
  alignas(kLine) std::array<std::array<std::byte, kBlock>, kDepth> scratch;
  for (std::size_t at = range.begin; at < range.end; at += kBlock) {
    const std::size_t bytes = std::min(kBlock, range.end - at);
    auto place = [&](Block block) {
      return block.is_input ? inputs[block.index] + at : scratch[block.index].data();
    };
    for (const Addition& step : additions_) {
      add<Element>(scratch[step.to].data(), place(step.left), place(step.right), bytes);
    }
    store_block(out + (at - range.begin), place(sum_), bytes, stores);
  }
}

void TreeSum::run(std::span<const std::byte* const> inputs, ByteRange range, std::byte* out, Dtype dtype,
                  Stores stores) const {
  switch (dtype) {
    case Dtype::kFloat32:
      return run_as<Float32>(inputs, range, out, stores);
    case Dtype::kFloat64:
      return run_as<Float64>(inputs, range, out, stores);
    case Dtype::kInt32:
      return run_as<Int32>(inputs, range, out, stores);
    case Dtype::kInt64:
      return run_as<Int64>(inputs, range, out, stores);
  }
}

}  // namespace regroup::collective
