// Prints what grant.h finds, and why each allocator was passed over.
#include "launcher/cli/allocation.h"

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/printable.h"
#include "launcher/alloc/allocators.h"
#include "launcher/job/grant.h"
#include "launcher/job/start.h"

namespace regroup::cli {
namespace {

constexpr const char* kHelp =
    "usage: regroup allocation [--json] [--allocator NAME]\n"
    "Show the hosts, slots, cores and GPUs that an allocator granted to this job, the variable or\n"
    "file that names each, the way to start agents there, and the time between a notice and the "
    "loss\n"
    "of a host. Without an allocator: show why each was passed over, and this machine.\n\n"
    "  --json            print JSON\n"
    "  --allocator NAME  flux, kubernetes, slurm, lsf, pbs, gridengine or none (default: "
    "detected)\n"
    "  -h, --help        print this help\n";

}  // namespace

int run_allocation(const CommandLine& command) {
  bool json = false;
  std::string name;
  const std::vector<std::string>& words = command.words;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--json") {
      json = true;
    } else if (words[i] == "--allocator" && i + 1 < words.size()) {
      name = words[++i];
    } else {
      const bool help = words[i] == "--help" || words[i] == "-h";
      if (!help)
        fmt::print(stderr, "regroup allocation: unexpected argument '{}'\n",
                   base::escaped(words[i]));
      fmt::print(help ? stdout : stderr, "{}", kHelp);
      return help ? 0 : 1;
    }
  }
  const alloc::AllocInput input = job::allocation_input(command.environment);
  auto granted = alloc::find_allocation(input, name);
  if (!granted.ok()) return job::fail(granted.status().message(), 1);
  job::mark_own(granted->reading);
  if (!json && granted->by != nullptr) {
    const auto grace = granted->by->grace(input);
    if (grace.ok()) {
      fmt::print("notice before the loss of a host: {:g} s ({})\n",
                 std::chrono::duration<double>(grace->host).count(), grace->source);
    } else {
      fmt::print("notice before the loss of a host: unknown: {}\n", grace.status().message());
    }
  }
  fmt::print("{}", json ? alloc::allocation_json(*granted) + "\n"
                        : alloc::allocation_text(input, *granted));
  if (json || granted->by != nullptr) return 0;
  const auto here = alloc::make_this_machine()->allocation();
  if (!here.ok()) return job::fail(here.status().message(), 1);
  for (const alloc::Host& host : here->hosts) fmt::print("{}\n", alloc::this_machine_text(host));
  return 0;
}

}  // namespace regroup::cli
