// The command `regroup place`: a placement on a machine that need not be there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/placement/job_place.h"

namespace regroup::placement {

struct PlaceCommand {
  std::string machine;  // file
  std::string fabric;   // file of the network between hosts that are such machines; "": `hosts` on
                        // one switch
  std::uint32_t hosts = 1;     // that are such machines on one switch
  std::optional<GpuSet> free;  // by GPU number, on each host; absent: all
  spec::Mapping mapping;       // --map-by, --rank-by, --bind-to in mpirun's words
  bool of_gpus = false;        // something was said that only GPUs have
  DeviceRequest request;       // with set.gpus 0 ranks are placed by processors
  double gradient_bytes = 0;   // of a training step, where it is to be predicted
  double step_seconds = 0;     // of one on one GPU
  bool explain = false, json = false, help = false;
};

// The words after `regroup place`. kInvalidArgument names the option, and the nearest there is.
[[nodiscard]] base::Result<PlaceCommand> parse_place_command(const std::vector<std::string>& words);

// For --help.
[[nodiscard]] std::string place_help();

// On `fabric` whose hosts are all alike; kInvalidArgument: their machine has no GPU, and words
// speak of some.
[[nodiscard]] base::Result<JobPlacement> place_command(const PlaceCommand& command,
                                                       const topology::Fabric& fabric);

// What it prints: a line for each rank; before them, where it explains, a sentence for each
// decision.
[[nodiscard]] std::string place_text(const PlaceCommand& command, const topology::Fabric& fabric,
                                     const JobPlacement& placement);
[[nodiscard]] std::string place_json(const topology::Fabric& fabric, const JobPlacement& placement);

}  // namespace regroup::placement
