// The factory of a build without UCX (-DREGROUP_UCX=OFF), in place of factory.cc.
#include <string>

#include "base/status.h"
#include "collective/ucx/factory.h"

namespace regroup::collective::ucx {
namespace {

base::Status built_without_ucx() {
  return base::unavailable("not viable: built without UCX; configure with -DREGROUP_UCX=ON");
}

}  // namespace

std::string why_not_viable() { return "built without UCX; configure with -DREGROUP_UCX=ON"; }

base::Result<std::shared_ptr<const UcxContext>> open_ucx(const UcxSettings& /*settings*/) {
  return built_without_ucx();
}

base::Result<std::shared_ptr<PeerMesh>> open_peer_mesh(
    std::shared_ptr<const UcxContext> /*context*/, const shmem::Arena& /*arena*/,
    const proto::World& /*world*/, proto::SlotId /*self*/, Addresses /*addresses*/) {
  return built_without_ucx();
}

void attach_carrier(PeerMesh& /*mesh*/, std::unique_ptr<Carrier> /*carrier*/) {}

base::Result<std::unique_ptr<Communicator>> make_ucx(std::shared_ptr<PeerMesh> /*mesh*/,
                                                     std::unique_ptr<LocalCommunicator> /*local*/,
                                                     const CommunicatorOptions& /*options*/) {
  return built_without_ucx();
}

}  // namespace regroup::collective::ucx
