// The command line of `regroup topo`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace regroup::topo {

struct Options {
  bool help = false;
  std::string machine;  // a file; "": this machine
  std::string svg, png;
  std::vector<int> gpu_of_rank;
  bool fresh = false;  // replace what the cache says
  enum class Colours { kAuto, kAlways, kNever } colours = Colours::kAuto;
};

inline constexpr std::string_view kUsage =
    "usage: regroup topo [OPTIONS]    what is in a machine, and how fast its parts reach each other\n"
    "  --machine FILE          a recorded or synthetic machine instead of this one (docs/guide/topology.md)\n"
    "  --svg FILE, --png FILE  its picture, instead of the text\n"
    "  --ranks GPU,GPU,...     by rank, the GPU that it is on: shown on top\n"
    "  --colour auto|always|never\n"
    "  --fresh                 look at this machine anew, whatever was found since it started\n";

// kInvalidArgument names the word.
[[nodiscard]] core::Result<Options> parse_options(const std::vector<std::string>& words);

}  // namespace regroup::topo
