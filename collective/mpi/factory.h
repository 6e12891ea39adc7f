// The carrier of a member through the user's MPI. docs/design/mpi_plane.md.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "collective/carrier.h"
#include "collective/mpi/client.h"
#include "proto/world.h"
#include "shmem/arena.h"

namespace regroup::collective::mpi {

// How this process finds and starts carriers.
struct CarrierSettings {
  std::string program;                   // path of regroup-mpi
  std::string place;                     // where the MPI is installed, see library.h
  std::string path;                      // PATH
  std::string job;                       // id of the job, the same on all hosts
  std::string folder;                    // private, exists; for the files of the PMI server
  std::vector<std::string> environment;  // of the carrier, "NAME=value"
  ClientLimits limits = {};
};

// Why this process can have no carriers, as a part of a sentence; "": it can. Loads no library.
[[nodiscard]] std::string why_not_viable(const CarrierSettings& settings);

// Opens the carrier of the member at `self` in the generation of `world`, which has several hosts.
// The member with the lowest rank of its host starts the carrier process. Does not wait for it: the
// carrier takes messages once the processes of all hosts have started, or never. `arena` is only
// used here. `on_lost`: see ClientOptions.
[[nodiscard]] base::Result<std::unique_ptr<Carrier>> open_carrier(
    const CarrierSettings& settings, const shmem::Arena& arena, const proto::World& world,
    proto::SlotId self, std::function<void(const std::string& why)> on_lost = {});

}  // namespace regroup::collective::mpi
