// Every comparison has fresh random inputs, of which every eighth is a corner value, and a result
// that is poisoned before, with a guard after it.
#include "tests/gpu/kernel_bits.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "collective/cuda/tree_plan.h"
#include "collective/reduce/tree_fold.h"
#include "proto/canonical.h"
#include "tests/gpu/device_kernels.h"

namespace regroup::gpu {
namespace {

using collective::Dtype;
using collective::Op;
using collective::cuda::HarvestArguments;
using collective::cuda::HarvestPiece;
using collective::cuda::TreeArguments;
using collective::cuda::TreePlan;
using proto::Interval;
using Bytes = std::vector<std::byte>;

constexpr Dtype kFloats[] = {Dtype::kFloat32, Dtype::kFloat64, Dtype::kFloat16, Dtype::kBfloat16};
constexpr std::size_t kGuard = 256;
constexpr std::byte kPoison{0xa5};
constexpr std::size_t kMostElements = 20'000;
constexpr std::size_t kMostNodes = 257;

// Sign, exponent and mantissa bits of each type.
struct Format {
  int mantissa;
  int exponent;
};
Format format_of(Dtype dtype) {
  if (dtype == Dtype::kFloat32) return {23, 8};
  if (dtype == Dtype::kFloat64) return {52, 11};
  if (dtype == Dtype::kFloat16) return {10, 5};
  return {7, 8};
}

// Zeros, denormals, the least and the greatest numbers, infinities, NaNs of all kinds.
std::uint64_t corner(Format f, std::mt19937_64& random) {
  const std::uint64_t sign = (random() & 1) << (f.mantissa + f.exponent);
  const std::uint64_t mantissa = (std::uint64_t{1} << f.mantissa) - 1;
  const std::uint64_t infinity = ((std::uint64_t{1} << f.exponent) - 1) << f.mantissa;
  const std::uint64_t values[] = {0,
                                  1,
                                  mantissa,
                                  mantissa + 1,
                                  infinity - 1,
                                  infinity,
                                  infinity | 1,
                                  infinity | mantissa,
                                  infinity | (mantissa + 1) / 2,
                                  random() & mantissa};
  return sign | values[random() % std::size(values)];
}

Bytes random_values(Dtype dtype, std::size_t count, std::mt19937_64& random) {
  const Format f = format_of(dtype);
  const std::size_t size = size_of(dtype);
  Bytes out(count * size);
  const int middle = (1 << (f.exponent - 1)) - 1;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t r = random();
    const auto exponent = static_cast<std::uint64_t>(middle - 6 + static_cast<int>(r % 13));
    std::uint64_t bits = (r >> 11 & ((std::uint64_t{1} << f.mantissa) - 1)) |
                         exponent << f.mantissa | (r >> 10 & 1) << (f.mantissa + f.exponent);
    if (r % 8 == 0) bits = corner(f, random);
    std::memcpy(out.data() + i * size, &bits, size);
  }
  return out;
}

void cover(Interval node, std::mt19937_64& random, std::vector<Interval>* out) {
  if (node.size() == 1 || random() % 4 == 0) {
    out->push_back(node);
    return;
  }
  const std::uint32_t middle = proto::canonical_split(node);
  cover({node.begin, middle}, random, out);
  cover({middle, node.end}, random, out);
}

// The memory of one comparison.
class Bench {
 public:
  Bench() : inputs_(kMostNodes * kSlot), partials_(8 * kSlot), result_(kSlot + kGuard) {}

  // The sum of `values` over `nodes` by the launches of `plan`.
  Bytes sum(const TreePlan& plan, std::span<const Bytes> values, Dtype dtype, Op op,
            std::mt19937_64& random) {
    std::vector<const void*> inputs;
    for (std::size_t i = 0; i < values.size(); ++i) {
      upload(inputs_.at(i * kSlot), values[i].data(), values[i].size());
      inputs.push_back(inputs_.at(i * kSlot));
    }
    std::vector<void*> partials;
    for (std::size_t i = 0; i < plan.partial_count(); ++i)
      partials.push_back(partials_.at(i * kSlot));
    poison();
    const TreePlan::Memory memory{inputs, partials, result_.at(0),
                                  values[0].size() / size_of(dtype)};
    for (std::size_t i = 0; i < plan.launches().size(); ++i) {
      launch(kernel_entry(plan.kernel_of(i, dtype, op)), static_cast<unsigned>(1 + random() % 40),
             static_cast<unsigned>(32 << random() % 4), plan.arguments_of(i, memory, op));
    }
    return result(values[0].size());
  }

  Bytes leaf(const void* entry, std::span<const Bytes> sources, std::vector<HarvestPiece> pieces,
             std::size_t count, std::size_t size, double weight, std::mt19937_64& random) {
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (pieces[i].source == nullptr) continue;
      upload(inputs_.at(i * kSlot), sources[i].data(), sources[i].size());
      const auto skew = static_cast<const std::byte*>(pieces[i].source) - sources[i].data();
      pieces[i].source = inputs_.at(i * kSlot + static_cast<std::size_t>(skew));
    }
    upload(partials_.at(0), pieces.data(), pieces.size() * sizeof(HarvestPiece));
    poison();
    launch(entry, static_cast<unsigned>(1 + random() % 40),
           static_cast<unsigned>(32 << random() % 4),
           HarvestArguments{reinterpret_cast<const HarvestPiece*>(partials_.at(0)), pieces.size(),
                            result_.at(0), count, weight});
    return result(count * size);
  }

 private:
  static constexpr std::size_t kSlot = (kMostElements + 64) * 8;

  void poison() {
    check(cudaMemset(result_.at(0), static_cast<int>(kPoison), result_.size()), "cudaMemset");
  }
  // An empty one if there was a write beyond it.
  Bytes result(std::size_t bytes) {
    synchronize();
    Bytes out(bytes + kGuard);
    download(out.data(), result_.at(0), out.size());
    const bool whole = std::count(out.end() - kGuard, out.end(), kPoison) == kGuard;
    out.resize(whole ? bytes : 0);
    return out;
  }

  const DeviceMemory inputs_;
  const DeviceMemory partials_;
  const DeviceMemory result_;
};

class Comparison {
 public:
  Comparison(Report& report, std::string what) : report_(report), what_(std::move(what)) {}
  ~Comparison() {
    report_.wrong(wrong_);
    report_.add({{"what", "bits"},
                 {"of", what_},
                 {"cases", cases_},
                 {"wrong", wrong_},
                 {"first_wrong", first_}},
                fmt::format("bits of {}: {} comparisons, {} wrong{}{}", what_, cases_, wrong_,
                            wrong_ == 0 ? "" : "; first: ", first_));
  }
  Comparison(const Comparison&) = delete;
  Comparison& operator=(const Comparison&) = delete;

  void add(const Bytes& got, const Bytes& want, const std::string& name) {
    ++cases_;
    if (got == want) return;
    if (wrong_++ > 0) return;
    const auto differ = std::ranges::mismatch(got, want).in1 - got.begin();
    first_ = fmt::format("{}, {} bytes, byte {}", name, want.size(),
                         got.empty() ? -1 : static_cast<long>(differ));
  }

 private:
  Report& report_;
  const std::string what_;
  std::size_t cases_ = 0;
  std::size_t wrong_ = 0;
  std::string first_;
};

Bytes folded(std::span<const Interval> nodes, std::uint32_t leaves, std::span<const Bytes> values,
             Dtype dtype, Op op) {
  std::vector<const std::byte*> inputs;
  for (const Bytes& value : values) inputs.push_back(value.data());
  Bytes out(values[0].size());
  collective::reduce::TreeFold::compile(nodes, leaves)
      ->run(inputs, {0, out.size()}, out.data(), dtype, op, collective::reduce::Stores::kPlain);
  return out;
}

std::vector<Bytes> values_for(std::span<const Interval> nodes, Dtype dtype, std::size_t count,
                              std::mt19937_64& random) {
  std::vector<Bytes> values;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    values.push_back(random_values(dtype, count, random));
  return values;
}

void check_trees(Bench& bench, Report& report, Dtype dtype, std::mt19937_64& random) {
  Comparison comparison(report, fmt::format("trees of {}", name_of(dtype)));
  std::vector<std::uint32_t> sizes{64, 257};
  for (std::uint32_t leaves = 1; leaves <= 17; ++leaves) sizes.push_back(leaves);
  for (const std::uint32_t leaves : sizes) {
    for (int round = 0; round < 6; ++round) {
      const Op op = round % 3 == 2 ? Op::kAvg : Op::kSum;
      std::vector<Interval> nodes = leaf_nodes(leaves);
      if (round % 2 == 1) {
        nodes.clear();
        cover({0, leaves}, random, &nodes);
        std::ranges::shuffle(nodes, random);
      }
      const std::size_t count = 1 + random() % (leaves > 17 ? 2000 : kMostElements);
      const auto values = values_for(nodes, dtype, count, random);
      const auto plan = TreePlan::compile(nodes, leaves);
      comparison.add(bench.sum(*plan, values, dtype, op, random),
                     folded(nodes, leaves, values, dtype, op),
                     fmt::format("{} of {} leaves in {} nodes", name_of(op), leaves, nodes.size()));
    }
  }
  if (size_of(dtype) != 2) return;  // all values of 16 bits
  Bytes all(2 * 65536);
  for (std::uint32_t i = 0; i < 65536; ++i) std::memcpy(&all[2 * std::size_t{i}], &i, 2);
  for (std::size_t at = 0; at < all.size(); at += 2 * 16384) {
    const auto from = all.begin() + static_cast<std::ptrdiff_t>(at);
    std::vector<Bytes> values{Bytes(from, from + 2 * 16384)};
    comparison.add(bench.sum(*TreePlan::compile(leaf_nodes(1), 1), values, dtype, Op::kSum, random),
                   folded(leaf_nodes(1), 1, values, dtype, Op::kSum), "every value");
    values.push_back(random_values(dtype, 16384, random));
    comparison.add(bench.sum(*TreePlan::compile(leaf_nodes(2), 2), values, dtype, Op::kAvg, random),
                   folded(leaf_nodes(2), 2, values, dtype, Op::kAvg), "every value and another");
  }
}

template <class T>
void check_harvest(Bench& bench, Report& report, const char* name, const void* entry,
                   std::mt19937_64& random) {
  constexpr bool kDouble = sizeof(T) == 8;
  Comparison comparison(report, name);
  const auto& kernels = collective::reduce::kernels_of(collective::reduce::best_simd());
  for (int round = 0; round < 12; ++round) {
    const std::size_t count = 1 + random() % kMostElements;
    const double weight = 1.0 / static_cast<double>(1 + random() % 9);
    std::vector<Bytes> sources;
    std::vector<HarvestPiece> pieces;
    std::vector<T> want(count);
    for (std::size_t at = 0; at < count && pieces.size() < kMostNodes;) {
      if (random() % 4 == 0) at = std::min(count, at + random() % 9);
      const std::size_t length = std::min<std::size_t>(count - at, random() % 3000);
      const std::size_t skew = random() % 2;
      sources.push_back(
          random_values(kDouble ? Dtype::kFloat64 : Dtype::kFloat32, length + 1, random));
      const std::byte* source = sources.back().data() + skew * sizeof(T);
      pieces.push_back({random() % 5 == 0 ? nullptr : source, at, length});
      if (pieces.back().source != nullptr)
        kernels.scale[kDouble ? 1 : 0](want.data() + at, source, length, weight, false);
      at += length;
    }
    for (T& value : want) {
      if (std::isnan(value)) value = std::numeric_limits<T>::quiet_NaN();
    }
    Bytes bytes(count * sizeof(T));
    std::memcpy(bytes.data(), want.data(), bytes.size());
    comparison.add(bench.leaf(entry, sources, pieces, count, sizeof(T), weight, random), bytes,
                   fmt::format("{} pieces of {} elements", pieces.size(), count));
  }
}

}  // namespace

std::vector<Interval> leaf_nodes(std::uint32_t leaves) {
  std::vector<Interval> nodes;
  for (std::uint32_t i = 0; i < leaves; ++i) nodes.push_back({i, i + 1});
  return nodes;
}

void check_bits(Report& report, std::mt19937_64& random) {
  Bench bench;
  for (const Dtype dtype : kFloats) check_trees(bench, report, dtype, random);
  check_harvest<float>(bench, report, "regroup_harvest_float32",
                       kernel_entry("regroup_harvest_float32"), random);
  check_harvest<double>(bench, report, "regroup_harvest_float64",
                        kernel_entry("regroup_harvest_float64"), random);
}

}  // namespace regroup::gpu
