// Inputs rotate through memory that is far larger than the L2 cache and never written after the
// start; results and copies rotate through another.
#include "tests/gpu/kernel_times.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>

#include "collective/cuda/kernel_list.h"
#include "collective/cuda/tree_plan.h"
#include "collective/reduce/tree_fold.h"
#include "tests/gpu/device_kernels.h"
#include "tests/gpu/gpu_timer.h"
#include "tests/gpu/kernel_bits.h"

namespace regroup::gpu {
namespace {

using collective::Dtype;
using collective::Op;
using collective::cuda::HarvestArguments;
using collective::cuda::HarvestPiece;
using collective::cuda::TreePlan;
using nlohmann::json;

constexpr std::size_t kMib = std::size_t{1} << 20;
constexpr std::size_t kPairs = 30;
constexpr std::size_t kSlice = 64 * 1024;  // elements that the CPU computes, too

// Memory of which each take() gives the next part.
class Ring {
 public:
  explicit Ring(std::size_t bytes) : memory_(bytes) {}

  char* take(std::size_t bytes) {
    bytes = (bytes + 255) / 256 * 256;
    if (bytes > memory_.size()) stop(fmt::format("{} bytes do not fit the arena", bytes));
    if (at_ + bytes > memory_.size()) at_ = 0;
    return memory_.at(std::exchange(at_, at_ + bytes));
  }
  [[nodiscard]] const DeviceMemory& memory() const { return memory_; }

 private:
  const DeviceMemory memory_;
  std::size_t at_ = 0;
};

struct Grid {
  std::uint32_t threads;
  std::uint32_t waves;  // blocks of so many times what the device holds at once; 0: one pass

  [[nodiscard]] std::string name() const {
    return waves == 0 ? fmt::format("{} threads, one pass", threads)
                      : fmt::format("{} threads, {} waves", threads, waves);
  }
};

struct Device {
  std::string name;
  std::uint32_t multiprocessors;
  std::size_t free;
};
Device device() {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return {properties.name, static_cast<std::uint32_t>(properties.multiProcessorCount), free};
}

// How a tree is summed: a kernel and its grid.
struct Way {
  const char* kernel;
  const void* entry;
  std::uint64_t elements;  // of a thread at a time
  Grid grid;

  [[nodiscard]] std::string name() const { return fmt::format("{}, {}", kernel, grid.name()); }
};

struct Shape {
  Dtype dtype;
  std::uint32_t inputs;
  std::size_t bytes;  // of each input

  [[nodiscard]] std::size_t moved() const { return (inputs + 1) * bytes; }
  [[nodiscard]] std::size_t count() const { return bytes / size_of(dtype); }
};

class Measurement {
 public:
  Measurement(Report& report, const TimesOptions& options, std::mt19937_64& random)
      : report_(report),
        options_(options),
        random_(random),
        device_(device()),
        inputs_(options.arena_bytes != 0 ? options.arena_bytes
                                         : std::min(24 * 1024 * kMib, device_.free / 2)),
        outputs_(inputs_.memory().size() / 2) {
    const DeviceMemory& memory = inputs_.memory();
    launch(kFillEntry, device_.multiprocessors * 8, 256,
           FillArguments{reinterpret_cast<std::uint32_t*>(memory.at(0)), memory.size() / 4,
                         random_()});
    synchronize();
  }

  void run() {
    copies();
    harvests();
    for (const std::size_t bytes : sizes()) {
      for (const Dtype dtype : {Dtype::kFloat32, Dtype::kBfloat16}) {
        for (const std::uint32_t inputs : {2, 4, 8, 16}) tree_row({dtype, inputs, bytes});
      }
    }
  }

 private:
  [[nodiscard]] std::vector<std::size_t> sizes() const {
    if (options_.quick) return {kMib / 4, kMib};
    return {16 * kMib, 64 * kMib, 256 * kMib, 1024 * kMib};
  }

  // The kernel that TreePlan names, with the grid of DeviceKernels.
  static Way way_of(const Shape& shape, const TreePlan& plan) {
    const char* name = plan.kernel_of(0, shape.dtype, Op::kSum);
    const auto* row = std::ranges::find_if(collective::cuda::kKernelRows, [&](const auto& each) {
      return std::strcmp(each.name, name) == 0;
    });
    return {name, kernel_entry(name), row->elements, {256, 0}};
  }

  bool time_left(const std::string& what, double needed) {
    if (report_.seconds_left() > needed) return true;
    report_.add({{"what", "left out"}, {"of", what}},
                fmt::format("{}: left out, {:.1f} s are left", what, report_.seconds_left()));
    return false;
  }

  // Copies half of `bytes`: as many are read and written.
  void copy(std::size_t bytes) {
    const char* from = inputs_.take(bytes / 2);
    check(cudaMemcpyAsync(outputs_.take(bytes / 2), from, bytes / 2, cudaMemcpyDeviceToDevice,
                          nullptr),
          "cudaMemcpyAsync");
  }

  static double gbps(std::size_t bytes, double us) { return static_cast<double>(bytes) / us / 1e3; }

  void copies() {
    for (const std::size_t bytes : sizes()) {
      const Times times = timer_.measure({[&] { copy(2 * bytes); }}, kPairs, 3)[0];
      const double rate = gbps(2 * bytes, times.p50());
      ceiling_ = std::max(ceiling_, rate);
      json row = row_of(times, 2 * bytes);
      row.update({{"what", "copy"}, {"bytes", bytes}});
      report_.add(row, fmt::format("copy of {} KiB: {:.0f} GB/s read and written, p50 {:.1f} us",
                                   bytes / 1024, rate, times.p50()));
    }
  }

  static json row_of(const Times& times, std::size_t moved) {
    return {{"unit", "us"},
            {"min", times.quantile(0)},
            {"p50", times.p50()},
            {"p99", times.quantile(0.99)},
            {"max", times.quantile(1)},
            {"samples", times.us.size()},
            {"moved", moved},
            {"gbps", gbps(moved, times.p50())}};
  }

  [[nodiscard]] std::uint32_t blocks_of(const void* entry, Grid grid, std::size_t threads) const {
    if (grid.waves == 0)
      return static_cast<std::uint32_t>(
          std::max<std::size_t>(1, (threads + grid.threads - 1) / grid.threads));
    int resident = 0;
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, entry,
                                                        static_cast<int>(grid.threads), 0),
          "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    if (resident < 1) stop("a kernel does not fit the device");
    return device_.multiprocessors * static_cast<std::uint32_t>(resident) * grid.waves;
  }

  // Queues one sum over the next inputs; the inputs and the result stay in `last_`.
  void sum(const Shape& shape, const Way& way, std::uint32_t blocks, const TreePlan& plan,
           char* result) {
    last_.clear();
    for (std::uint32_t i = 0; i < shape.inputs; ++i) last_.push_back(inputs_.take(shape.bytes));
    result_ = result;
    launch(way.entry, blocks, way.grid.threads,
           plan.arguments_of(0, {last_, {}, result, shape.count()}, Op::kSum));
  }

  // Compares slices of the last result with the CPU's; the first is at the begin, the last at the
  // end.
  bool last_is_right(const Shape& shape) {
    synchronize();
    const std::size_t size = size_of(shape.dtype);
    const std::size_t count = std::min(kSlice, shape.count());
    const auto nodes = leaf_nodes(shape.inputs);
    const auto fold = collective::reduce::TreeFold::compile(nodes, shape.inputs);
    const std::size_t rest = shape.count() - count;
    for (const std::size_t at :
         {std::size_t{0}, rest, rest / 2, rest == 0 ? 0 : random_() % rest}) {
      std::vector<std::vector<std::byte>> values(shape.inputs,
                                                 std::vector<std::byte>(count * size));
      std::vector<const std::byte*> inputs;
      for (std::size_t i = 0; i < values.size(); ++i) {
        download(values[i].data(), static_cast<const char*>(last_[i]) + at * size, count * size);
        inputs.push_back(values[i].data());
      }
      std::vector<std::byte> got(count * size), want(count * size);
      download(got.data(), result_ + at * size, count * size);
      fold->run(inputs, {0, want.size()}, want.data(), shape.dtype, Op::kSum,
                collective::reduce::Stores::kPlain);
      if (got != want) return false;
    }
    return true;
  }

  // Whether a sum into poisoned memory has the CPU's bits; if not, counts and tells it.
  bool verified(const Shape& shape, const Way& way, std::uint32_t blocks, const TreePlan& plan) {
    char* result = outputs_.take(shape.bytes);
    check(cudaMemsetAsync(result, 0xa5, shape.bytes, nullptr), "cudaMemsetAsync");
    sum(shape, way, blocks, plan, result);
    if (last_is_right(shape)) return true;
    wrong(shape, way);
    return false;
  }
  void wrong(const Shape& shape, const Way& way) {
    report_.wrong(1);
    report_.add({{"what", "wrong"}, {"of", way.name()}},
                fmt::format("WRONG BITS: {} inputs of {} KiB {} by {}", shape.inputs,
                            shape.bytes / 1024, name_of(shape.dtype), way.name()));
  }

  [[nodiscard]] std::uint32_t tree_blocks(const Shape& shape, const Way& way) const {
    return blocks_of(way.entry, way.grid, (shape.count() + way.elements - 1) / way.elements);
  }

  void tree_row(const Shape& shape) {
    const std::string title = fmt::format("tree of {} x {} KiB {}", shape.inputs,
                                          shape.bytes / 1024, name_of(shape.dtype));
    if (!time_left(title, 1.0)) return;
    const auto plan = TreePlan::compile(leaf_nodes(shape.inputs), shape.inputs);
    const Way way = way_of(shape, *plan);
    const std::uint32_t blocks = tree_blocks(shape, way);
    if (!verified(shape, way, blocks, *plan)) return;
    const auto times =
        timer_.measure({[&] { sum(shape, way, blocks, *plan, outputs_.take(shape.bytes)); },
                        [&] { copy(shape.moved()); }},
                       kPairs, 3);
    json row = row_of(times[0], shape.moved());
    row.update({{"what", "tree"},
                {"dtype", name_of(shape.dtype)},
                {"inputs", shape.inputs},
                {"bytes", shape.bytes},
                {"kernel", way.kernel},
                {"threads", way.grid.threads},
                {"waves", way.grid.waves},
                {"blocks", blocks}});
    finish_row(row, times, shape.moved(), goal_of(shape), title + ", " + way.name());
  }

  struct Goal {
    double ratio = 0;
    double gbps = 0;
  };
  // Of docs: of a copy, and absolute.
  [[nodiscard]] Goal goal_of(const Shape& shape) const {
    if (shape.inputs != 4) return {};
    if (shape.bytes < 64 * kMib) return {0.75, 0};
    if (shape.dtype == Dtype::kBfloat16) return {0.85, 0};
    const bool h200 = device_.name.find("H200") != std::string::npos;
    return {0.9, h200 ? 3900.0 : 2700.0};
  }

  // Adds the ratio to the copies of the same pairs, and to the fastest copy.
  void finish_row(json row, const std::vector<Times>& times, std::size_t moved, Goal goal,
                  const std::string& title) {
    Times ratios;
    for (std::size_t i = 0; i < times[0].us.size(); ++i)
      ratios.us.push_back(times[1].us[i] / times[0].us[i]);
    const double rate = gbps(moved, times[0].p50());
    const double of_ceiling = ceiling_ > 0 ? rate / ceiling_ : 0;
    row.update({{"copy_gbps", gbps(moved, times[1].p50())},
                {"ratio", ratios.p50()},
                {"ratio_of_fastest_copy", of_ceiling}});
    std::string verdict;
    if (goal.ratio > 0) {
      const bool met = ratios.p50() >= goal.ratio && rate >= goal.gbps;
      row.update({{"goal_ratio", goal.ratio}, {"goal_gbps", goal.gbps}, {"met", met}});
      verdict = met ? ": goal met" : ": GOAL MISSED";
    }
    report_.add(row, fmt::format("{}: {:.0f} GB/s, p50 {:.1f} p99 {:.1f} us, {:.1f} % of a copy, "
                                 "{:.1f} % of the fastest{}",
                                 title, rate, times[0].p50(), times[0].quantile(0.99),
                                 100 * ratios.p50(), 100 * of_ceiling, verdict));
  }

  // Elements of each tensor of GPT-2 of 124 M parameters.
  [[nodiscard]] std::vector<std::size_t> tensors() const {
    const std::size_t width = options_.quick ? 7 : 768;
    std::vector<std::size_t> out{50257 * width, 1024 * width};
    for (int layer = 0; layer < 12; ++layer) {
      for (const std::size_t rows : {1, 1, 2304, 3, 768, 1, 1, 1, 3072, 4, 3072, 1})
        out.push_back(rows * width);
    }
    out.insert(out.end(), {width, width});
    return out;
  }

  void harvests() {
    for (const bool packed : {false, true}) harvest_row({128, 4}, packed);
  }

  // `packed`: the sources are at any element, as views of a larger tensor may be; else they are
  // aligned to 256 bytes.
  void harvest_row(Grid grid, bool packed) {
    const char* name = "regroup_harvest_float32";
    const void* entry = kernel_entry(name);
    const std::string title = fmt::format("harvest from {} sources by {}, {}",
                                          packed ? "unaligned" : "aligned", name, grid.name());
    if (!time_left(title, 1.0)) return;
    const std::vector<std::size_t> lengths = tensors();
    std::size_t count = 0;
    for (const std::size_t length : lengths) count += length;
    std::vector<HarvestPiece> tables[2];
    const DeviceMemory table(2 * lengths.size() * sizeof(HarvestPiece));
    for (int t = 0; t < 2; ++t) {
      std::size_t at = 0;
      for (const std::size_t length : lengths) {
        const char* source = inputs_.take((length + 64) * 4);
        tables[t].push_back({source + (packed ? 4 * (1 + random_() % 3) : 0), at, length});
        at += length;
      }
      upload(table.at(t * lengths.size() * sizeof(HarvestPiece)), tables[t].data(),
             lengths.size() * sizeof(HarvestPiece));
    }
    const std::uint32_t blocks = blocks_of(entry, grid, 0);
    int turn = 0;
    const auto queue = [&](char* leaf) {
      const auto* pieces = reinterpret_cast<const HarvestPiece*>(
          table.at(static_cast<std::size_t>(turn++ % 2) * lengths.size() * sizeof(HarvestPiece)));
      launch(entry, blocks, grid.threads,
             HarvestArguments{pieces, lengths.size(), leaf, count, 1.0 / 3});
    };
    char* leaf = outputs_.take(count * 4);
    check(cudaMemsetAsync(leaf, 0xa5, count * 4, nullptr), "cudaMemsetAsync");
    queue(leaf);
    if (!harvest_is_right(tables[0], leaf)) {
      report_.wrong(1);
      report_.add({{"what", "wrong"}, {"of", title}}, "WRONG BITS: " + title);
      return;
    }
    const auto times = timer_.measure(
        {[&] { queue(outputs_.take(count * 4)); }, [&] { copy(8 * count); }}, kPairs, 2);
    json row = row_of(times[0], 8 * count);
    row.update({{"what", "harvest"},
                {"aligned", !packed},
                {"elements", count},
                {"tensors", lengths.size()},
                {"kernel", name},
                {"threads", grid.threads},
                {"waves", grid.waves}});
    finish_row(row, times, 8 * count, {}, title);
  }

  // Compares the ends and the middle of each tensor with the CPU.
  bool harvest_is_right(const std::vector<HarvestPiece>& pieces, const char* leaf) {
    synchronize();
    const auto scale = collective::reduce::kernels_of(collective::reduce::best_simd()).scale[0];
    for (const HarvestPiece& piece : pieces) {
      const std::size_t length = std::min<std::size_t>(piece.count, 2048);
      const std::size_t rest = piece.count - length;
      for (const std::size_t at : {std::size_t{0}, rest / 2, rest}) {
        std::vector<float> from(length), got(length), want(length);
        download(from.data(), static_cast<const char*>(piece.source) + at * 4, length * 4);
        download(got.data(), leaf + (piece.offset + at) * 4, length * 4);
        scale(want.data(), from.data(), length, 1.0 / 3, false);
        if (std::memcmp(got.data(), want.data(), length * 4) != 0) return false;
      }
    }
    return true;
  }

  Report& report_;
  const TimesOptions options_;
  std::mt19937_64& random_;
  const Device device_;
  GpuTimer timer_;
  Ring inputs_;
  Ring outputs_;
  double ceiling_ = 0;             // GB/s of the fastest copy
  std::vector<const void*> last_;  // inputs of the last sum
  const char* result_ = nullptr;   // of the last sum
};

}  // namespace

void measure_times(Report& report, const TimesOptions& options, std::mt19937_64& random) {
  Measurement(report, options, random).run();
}

}  // namespace regroup::gpu
