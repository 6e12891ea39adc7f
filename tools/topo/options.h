// The command line of `regroup topo`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace regroup::topo {

struct Options {
  bool help = false;
  std::string machine;  // the file to read; "": this machine
  std::string svg;
  std::string png;
  std::vector<int> gpu_of_rank;
  bool fresh = false;  // do not read the cache, but replace it
  enum class Colours { kAuto, kAlways, kNever } colours = Colours::kAuto;
};

inline constexpr std::string_view kUsage =
    "usage: regroup topo [OPTIONS]\n"
    "Show the processors, GPUs and NICs of a machine and the speed of the paths between them.\n\n"
    "  --machine FILE               show a recorded or synthetic machine (docs/guide/topology.md)\n"
    "  --svg FILE, --png FILE       draw a picture instead of printing text\n"
    "  --ranks GPU,GPU,...          GPU of each rank, in rank order, to mark the ranks\n"
    "  --colour auto|always|never   use colours in text (default: auto)\n"
    "  --fresh                      detect this machine again, without the cache\n"
    "  -h, --help                   print this help\n";

// The message of kInvalidArgument names the bad word.
[[nodiscard]] base::Result<Options> parse_options(const std::vector<std::string>& words);

}  // namespace regroup::topo
