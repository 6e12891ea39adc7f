// `regroup topo`: a machine as text or as a picture. usage: regroup-topo CACHE_FOLDER SOURCE
// [OPTIONS]
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "base/printable.h"
#include "base/status.h"
#include "launcher/topology/discover.h"
#include "launcher/topology/load_machine.h"
#include "launcher/topology/machine_view.h"
#include "tools/topo/options.h"
#include "tools/topo/paint.h"

namespace {

using regroup::topo::Options;
using regroup::topology::Machine;

int fail(std::string_view why) {
  fmt::print(stderr, "regroup topo: {}\n", regroup::base::escaped_lines(why));
  return 1;
}

regroup::base::Result<Machine> machine_of(const Options& options, const std::string& cache,
                                          const std::string& source) {
  if (!options.machine.empty()) return regroup::topology::load_machine(options.machine);
  regroup::topology::DiscoverOptions discover;
  if (cache != "-") discover.cache_folder = cache;
  discover.fresh = options.fresh;
  discover.source = source;
  return regroup::topology::discover_machine(discover);
}

regroup::base::Result<std::vector<int>> ranks_of(const Options& options, const Machine& machine) {
  std::vector<int> out;
  if (options.gpu_of_rank.empty()) return out;
  out.assign(machine.gpus.size(), -1);
  for (std::size_t rank = 0; rank < options.gpu_of_rank.size(); ++rank) {
    const auto gpu = static_cast<std::size_t>(options.gpu_of_rank[rank]);
    if (gpu >= out.size())
      return regroup::base::invalid_argument(
          fmt::format("--ranks: GPU {} does not exist in {}", gpu, machine.name));
    if (out[gpu] >= 0)
      return regroup::base::invalid_argument(fmt::format("--ranks: GPU {} is listed twice", gpu));
    out[gpu] = static_cast<int>(rank);
  }
  return out;
}

int show(const Options& options, const Machine& machine, const std::vector<int>& ranks) {
  using Colours = Options::Colours;
  const regroup::topo::Picture picture = regroup::topo::picture_of(machine, ranks);
  for (const auto& [path, format] : {std::pair(options.svg, regroup::topo::Format::kSvg),
                                     {options.png, regroup::topo::Format::kPng}}) {
    if (path.empty()) continue;
    const regroup::base::Status status = regroup::topo::paint(picture, format, path);
    if (!status.ok()) return fail(status.message());
  }
  if (!options.svg.empty() || !options.png.empty()) return 0;
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  fmt::print("{}", regroup::topology::machine_view(
                       machine, {options.colours == Colours::kAlways ||
                                     (options.colours == Colours::kAuto && terminal),
                                 ranks}));
  return std::fflush(stdout) == 0 ? 0 : fail("cannot write to standard output");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return fail("started by regroup only: run `regroup topo`");
  const auto options = regroup::topo::parse_options({argv + 3, argv + argc});
  if (!options.ok())
    return fail(fmt::format("{}\n{}", options.status().message(), regroup::topo::kUsage));
  if (options->help) {
    fmt::print("{}", regroup::topo::kUsage);
    return 0;
  }
  const auto machine = machine_of(*options, argv[1], argv[2]);
  if (!machine.ok()) return fail(machine.status().message());
  const auto ranks = ranks_of(*options, *machine);
  if (!ranks.ok()) return fail(ranks.status().message());
  return show(*options, *machine, *ranks);
}
