// Opens the communicator of a generation with the first backend that can serve it.
#pragma once

#include <memory>

#include "base/status.h"
#include "collective/options.h"
#include "proto/world.h"
#include "regroup/communicator.h"
#include "shmem/arena.h"

namespace regroup::collective::ucx {
class PeerMesh;
}  // namespace regroup::collective::ucx

namespace regroup::collective::backends {

// The member that opens a communicator, and what it can be opened on.
struct Endpoint {
  const shmem::Arena& arena;  // of this host; must outlive the communicator
  const proto::World& world;
  proto::SlotId self;
  // To the members on other hosts (ucx/factory.h); null: there is none.
  std::shared_ptr<ucx::PeerMesh> mesh;
};

// All members of the communicator must call it with equal `options`. Does not block. kUnavailable
// if no backend can serve these ranks: the message has the reason of each. After one communicator
// on a mesh has failed, all communicators on it fail.
[[nodiscard]] base::Result<std::unique_ptr<Communicator>> open_communicator(
    const Endpoint& at, const CommunicatorOptions& options = {});

}  // namespace regroup::collective::backends
