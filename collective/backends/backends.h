// Opens the communicator of a generation with the first backend that can serve it.
#pragma once

#include <memory>
#include <optional>

#include "base/status.h"
#include "collective/options.h"
#include "proto/plane.h"
#include "proto/world.h"
#include "regroup/communicator.h"
#include "shmem/arena.h"

namespace regroup::collective::mpi {
struct CarrierSettings;
}  // namespace regroup::collective::mpi
namespace regroup::collective::ucx {
class PeerMesh;
}  // namespace regroup::collective::ucx

namespace regroup::collective::backends {

// The member that opens a communicator, and the memory and connections that a backend may use.
struct Endpoint {
  const shmem::Arena& arena;  // this host's; must outlive the communicator
  const proto::World& world;
  proto::SlotId self;
  // Connections to the members on other hosts (ucx/factory.h); null: none.
  std::shared_ptr<ucx::PeerMesh> mesh;
};

// Where the gradients of this process are, and its MPI.
struct GradientMemory {
  bool device = false;  // in memory of a GPU
  // The number of that GPU, as this process counts; empty: the caller copies its gradients to the
  // host and sums back.
  std::optional<int> gpu = {};
  const mpi::CarrierSettings* mpi = nullptr;  // null: the job has no --plane mpi
  std::string no_nccl = {};  // why the user's settings exclude NCCL; "": they do not
};

// What this process knows of the data planes, for membership/choose_plane.h: the reason why a plane
// cannot work here. Loads no library for gradients in the host's memory; for those of a GPU its
// driver and then NCCL, which PyTorch has loaded anyway. That libucp is missing is noticed by the
// first World over several hosts. Does not block.
[[nodiscard]] proto::PlaneFacts plane_facts(const GradientMemory& memory);

// Opens a communicator; all its members must call this with equal `options`. Does not block.
// kUnavailable if no backend can serve these ranks; the message has the reason of each backend.
// When one communicator on a mesh fails, all communicators on that mesh fail.
[[nodiscard]] base::Result<std::unique_ptr<Communicator>> open_communicator(
    const Endpoint& at, const CommunicatorOptions& options = {});

}  // namespace regroup::collective::backends
