// The compiler for the canonical tree, and the loop that runs its program.
#include "collective/reduce/tree_fold.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "collective/reduce/standard_arithmetic.h"
#include "proto/canonical.h"

namespace regroup::collective::reduce {
namespace {

constexpr std::size_t kBlock = 4096;
// Greatest depth of the tree, and so of the scratch stack.
constexpr std::size_t kDepth = std::bit_width(proto::kMaxShards) + 1;

Accumulator accumulator_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat64:
      return Accumulator::kFloat64;
    case Dtype::kInt32:
      return Accumulator::kInt32;
    case Dtype::kInt64:
      return Accumulator::kInt64;
    case Dtype::kInt8:
      return Accumulator::kInt8;
    case Dtype::kInt16:
      return Accumulator::kInt16;
    case Dtype::kUint8:
      return Accumulator::kUint8;
    case Dtype::kFloat32:
    case Dtype::kFloat16:
    case Dtype::kBfloat16:
      break;
  }
  return Accumulator::kFloat32;
}

}  // namespace

ByteRange slice_of(std::size_t bytes, int index, int count) {
  const std::size_t lines = (bytes + kCacheLine - 1) / kCacheLine;
  auto edge = [&](std::size_t i) {
    return std::min(bytes, lines * i / static_cast<std::size_t>(count) * kCacheLine);
  };
  return {edge(static_cast<std::size_t>(index)), edge(static_cast<std::size_t>(index) + 1)};
}

// Walks the tree from the root; stops at nodes that are inputs.
struct TreeFold::Compiler {
  std::span<const proto::Interval> nodes;
  std::vector<std::uint32_t> order;  // indices of the nodes, from left to right
  std::size_t next = 0;              // in `order`
  std::vector<Step> steps = {};
  bool failed = false;

  // Emits the steps that put the result over `node` into scratch[depth], or finds it in an input.
  Block visit(proto::Interval node, std::uint32_t depth) {
    failed = failed || next == order.size() || nodes[order[next]].begin != node.begin;
    if (failed) return {};
    if (nodes[order[next]] == node) return {true, order[next++]};
    if (node.size() < 2) return failed = true, Block{};
    const std::uint32_t middle = proto::canonical_split(node);
    const Block left = visit({node.begin, middle}, depth);
    const Block right = visit({middle, node.end}, left.is_input ? depth : depth + 1);
    steps.push_back({depth, left, right});
    return {false, depth};
  }
};

base::Result<TreeFold> TreeFold::compile(std::span<const proto::Interval> nodes,
                                         std::uint32_t leaves, Simd simd) {
  Compiler compiler{.nodes = nodes, .order = {}};
  for (std::uint32_t i = 0; i < nodes.size(); ++i) compiler.order.push_back(i);
  std::ranges::sort(compiler.order, {}, [&](std::uint32_t i) { return nodes[i]; });
  TreeFold program;
  if (leaves > 0 && leaves <= proto::kMaxShards) program.result_ = compiler.visit({0, leaves}, 0);
  if (compiler.failed || compiler.next == 0 || compiler.next != nodes.size()) {
    std::string list;
    for (std::uint32_t i : compiler.order)
      list += fmt::format(" [{},{})", nodes[i].begin, nodes[i].end);
    return base::invalid_argument(fmt::format(
        "sum: these are not disjoint canonical nodes that cover {} leaves:{}", leaves, list));
  }
  program.steps_ = std::move(compiler.steps);
  program.leaves_ = leaves;
  program.kernels_ = &kernels_of(simd);
  return program;
}

// Executes the compiled steps for one type and operation.
class TreeFold::Runner {
 public:
  Runner(const TreeFold& program, std::span<const std::byte* const> inputs, Dtype dtype, Op op)
      : program_(program),
        inputs_(inputs),
        size_(size_of(dtype)),
        combine_(program.kernels_->combine[index_of(dtype)][static_cast<std::size_t>(op)]) {
    const bool wide = dtype == Dtype::kFloat16 || dtype == Dtype::kBfloat16;
    const bool floats = wide || dtype == Dtype::kFloat32 || dtype == Dtype::kFloat64;
    if (op == Op::kAvg) divisor_ = program.leaves_;
    if (!wide && !program.steps_.empty()) {
      close_ = program.kernels_->close[index_of(dtype)][static_cast<std::size_t>(op)];
    }
    if (floats || divisor_ != 1) finish_ = program.kernels_->finish[index_of(dtype)];
    if (!wide) return;
    widen_ = program.kernels_->widen[dtype == Dtype::kBfloat16 ? 1 : 0];
    narrow_ = program.kernels_->narrow[dtype == Dtype::kBfloat16 ? 1 : 0];
  }

  void run(ByteRange range, std::byte* out, Stores stores) {
    const std::size_t step = widen_ == nullptr ? kBlock : kBlock / 2;
    for (std::size_t at = range.begin; at < range.end; at += step) {
      const std::size_t bytes = std::min(step, range.end - at);
      if (close_ != nullptr) {
        close(at, bytes / size_, out + (at - range.begin), stores);
        continue;
      }
      store_block(out + (at - range.begin), block(at, bytes / size_), bytes, stores);
    }
  }

 private:
  static std::size_t index_of(Dtype dtype) {
    return static_cast<std::size_t>(accumulator_of(dtype));
  }

  // Writes the result of `count` elements from byte `at` on to `out`.
  void close(std::size_t at, std::size_t count, std::byte* out, Stores stores) {
    const std::span<const Step> steps = program_.steps_;
    combine(steps.first(steps.size() - 1), at, count);
    const std::byte* left = place(steps.back().left, at, count, nullptr);
    const std::byte* right = place(steps.back().right, at, count, nullptr);
    close_(out, left, right, count, divisor_, passes_cache(stores));
  }

  void combine(std::span<const Step> steps, std::size_t at, std::size_t count) {
    for (const Step& step : steps) {
      const std::byte* left = place(step.left, at, count, wide_[0].data());
      const std::byte* right = place(step.right, at, count, wide_[1].data());
      combine_(scratch_[step.to].data(), left, right, count);
    }
  }

  // The result of `count` elements from byte `at` on.
  const std::byte* block(std::size_t at, std::size_t count) {
    combine(program_.steps_, at, count);
    const std::byte* result = place(program_.result_, at, count, scratch_[0].data());
    if (finish_ == nullptr) return result;
    std::byte* last = scratch_[0].data();
    const bool copied = result == last;  // the root is folded at depth 0
    if (!copied) std::memcpy(last, result, count * size_);
    finish_(last, count, divisor_);
    if (narrow_ == nullptr) return last;
    narrow_(wide_[0].data(), reinterpret_cast<const float*>(last), count);
    return wide_[0].data();
  }

  // The block as accumulators; inputs of 16-bit types are widened into `room`.
  const std::byte* place(Block block, std::size_t at, std::size_t count, std::byte* room) {
    if (!block.is_input) return scratch_[block.index].data();
    const std::byte* input = inputs_[block.index] + at;
    if (widen_ == nullptr) return input;
    widen_(reinterpret_cast<float*>(room), input, count);
    return room;
  }

  const TreeFold& program_;
  const std::span<const std::byte* const> inputs_;
  const std::size_t size_;
  const Kernels::Combine combine_;
  Kernels::Close close_ = nullptr;    // null: block() instead
  Kernels::Finish finish_ = nullptr;  // null: nothing to do
  Kernels::Widen widen_ = nullptr;
  Kernels::Narrow narrow_ = nullptr;
  std::uint32_t divisor_ = 1;
  alignas(kCacheLine) std::array<std::array<std::byte, kBlock>, kDepth> scratch_;
  alignas(kCacheLine) std::array<std::array<std::byte, kBlock>, 2> wide_;
};

Kernels::Close TreeFold::close_of(Dtype dtype, Op op) const {
  const bool wide = dtype == Dtype::kFloat16 || dtype == Dtype::kBfloat16;
  if (steps_.size() != 1 || wide) return nullptr;
  return kernels_
      ->close[static_cast<std::size_t>(accumulator_of(dtype))][static_cast<std::size_t>(op)];
}

void TreeFold::run(std::span<const std::byte* const> inputs, ByteRange range, std::byte* out,
                   Dtype dtype, Op op, Stores stores) const {
  const StandardArithmetic arithmetic;
  if (const auto close = close_of(dtype, op)) {  // needs no scratch memory
    close(out, inputs[steps_[0].left.index] + range.begin,
          inputs[steps_[0].right.index] + range.begin, range.size() / size_of(dtype),
          divisor_of(op), passes_cache(stores));
    return;
  }
  Runner(*this, inputs, dtype, op).run(range, out, stores);
}

}  // namespace regroup::collective::reduce
