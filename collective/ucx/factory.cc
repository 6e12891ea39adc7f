// Opens contexts, meshes and communicators.
#include "collective/ucx/factory.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/status.h"
#include "collective/ucx/communicator.h"
#include "collective/ucx/library.h"
#include "collective/ucx/peer_mesh.h"

namespace regroup::collective::ucx {

using base::Result;

std::string why_not_viable() { return ""; }

Result<std::shared_ptr<const UcxContext>> open_ucx(const UcxSettings& settings) {
  return UcxContext::open(settings);
}

Result<std::shared_ptr<PeerMesh>> open_peer_mesh(std::shared_ptr<const UcxContext> context,
                                                 const shmem::Arena& arena,
                                                 const proto::World& world, proto::SlotId self,
                                                 Addresses addresses) {
  return PeerMesh::open(std::move(context), arena, world, self, std::move(addresses));
}

void attach_carrier(PeerMesh& mesh, std::unique_ptr<Carrier> carrier) {
  mesh.attach(std::move(carrier));
}

Result<std::unique_ptr<Communicator>> make_ucx(std::shared_ptr<PeerMesh> mesh,
                                               std::unique_ptr<LocalCommunicator> local,
                                               const CommunicatorOptions& options) {
  REGROUP_ASSIGN_OR_RETURN(auto ranks, ranks_of(mesh->world(), options));
  const auto mine = std::ranges::find(ranks, mesh->rank());
  if (mine == ranks.end()) {
    return base::invalid_argument(
        fmt::format("make_ucx: rank {} is not among the {} ranks of the communicator", mesh->rank(),
                    ranks.size()));
  }
  const auto rank = static_cast<int>(mine - ranks.begin());
  auto engine = std::make_shared<Engine>(std::move(mesh), local->core_use());
  return UcxCommunicator::open(
      std::move(engine), {options.instance.value, 0, static_cast<std::uint32_t>(options.channel)},
      std::move(ranks), rank, std::move(local));
}

}  // namespace regroup::collective::ucx
