// Compares the device kernels with the CPU's bit by bit, then measures them beside copies.
// usage: gpu_kernels [--json FILE] [--seconds N] [--seed N] [--only bits|times] [--quick]
//   --json FILE  gets an array of rows
//   --seconds N  leaves out what would end later (default: 45)
//   --quick      sizes that a try without a GPU can do
// The exit status is 1 if bits are wrong, 2 after an error of CUDA.
#include <cstdio>
#include <random>
#include <string>

#include "tests/gpu/kernel_bits.h"
#include "tests/gpu/kernel_times.h"
#include "tests/gpu/report.h"

namespace {

struct Options {
  std::string json;
  double seconds = 45;
  std::uint64_t seed = std::random_device()();
  std::string only;
  bool quick = false;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--quick") {
      options.quick = true;
      continue;
    }
    if (i + 1 == argc) regroup::gpu::stop(word + ": not an option, or its value is missing");
    const std::string value = argv[++i];
    if (word == "--json") {
      options.json = value;
    } else if (word == "--seconds") {
      options.seconds = std::stod(value);
    } else if (word == "--seed") {
      options.seed = std::stoull(value);
    } else if (word == "--only" && (value == "bits" || value == "times")) {
      options.only = value;
    } else {
      regroup::gpu::stop(word + " " + value + ": not an option");
    }
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  regroup::gpu::Report report(options.json, options.seconds);
  std::mt19937_64 random(options.seed);
  report.add({{"what", "seed"}, {"seed", options.seed}}, fmt::format("seed {}", options.seed));
  if (options.only != "times") regroup::gpu::check_bits(report, random);
  if (options.only != "bits") {
    regroup::gpu::TimesOptions times{.quick = options.quick};
    if (options.quick) times.arena_bytes = std::size_t{64} << 20;
    regroup::gpu::measure_times(report, times, random);
  }
  report.add({{"what", "end"}, {"wrong", report.wrong()}, {"seconds_left", report.seconds_left()}},
             fmt::format("{} results are wrong, {:.1f} s are left", report.wrong(),
                         report.seconds_left()));
  return report.wrong() == 0 ? 0 : 1;
}
