// The command `regroup place`: shows a placement on a described machine, which need not exist.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/placement/job_place.h"

namespace regroup::placement {

struct PlaceCommand {
  std::string machine;         // file that describes each host
  std::string fabric;          // file that describes the network between hosts; "": one switch
  std::uint32_t hosts = 1;     // number of hosts, without a `fabric`
  std::optional<GpuSet> free;  // free GPUs on each host, by number; empty: all
  spec::Mapping mapping;       // mpirun's --map-by, --rank-by, --bind-to
  bool of_gpus = false;        // an option was given that applies only to GPUs
  DeviceRequest request;       // if set.gpus is 0, ranks are placed by processors
  double gradient_bytes = 0;   // to predict the time of a training step; 0: no prediction
  double step_seconds = 0;     // time of that step on one GPU
  bool explain = false;
  bool json = false;
  bool help = false;
};

// Parses the words after `regroup place`. kInvalidArgument names the option and the nearest valid
// one.
[[nodiscard]] base::Result<PlaceCommand> parse_place_command(const std::vector<std::string>& words);

// For --help.
[[nodiscard]] std::string place_help();

// Places on `fabric`, whose hosts are all equal. kInvalidArgument: the machine has no GPU, but
// options concern GPUs.
[[nodiscard]] base::Result<JobPlacement> place_command(const PlaceCommand& command,
                                                       const topology::Fabric& fabric);

// The output: one line per rank; with `explain`, first a sentence for each decision.
[[nodiscard]] std::string place_text(const PlaceCommand& command, const topology::Fabric& fabric,
                                     const JobPlacement& placement);
[[nodiscard]] std::string place_json(const topology::Fabric& fabric, const JobPlacement& placement);

}  // namespace regroup::placement
