// Opens contexts, meshes and communicators.
#include "collective/ucx/factory.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "collective/ucx/communicator.h"
#include "collective/ucx/library.h"
#include "collective/ucx/peer_mesh.h"

namespace regroup::collective {

using base::Result;

Result<std::shared_ptr<const UcxContext>> open_ucx(const UcxSettings& settings) {
  return UcxContext::open(settings);
}

Result<std::shared_ptr<PeerMesh>> open_peer_mesh(std::shared_ptr<const UcxContext> context,
                                                 const shmem::Arena& arena, const proto::World& world,
                                                 proto::SlotId self, Addresses addresses) {
  return PeerMesh::open(std::move(context), arena, world, self, std::move(addresses));
}

Result<std::unique_ptr<Communicator>> make_ucx(std::shared_ptr<PeerMesh> mesh,
                                               const CommunicatorOptions& options) {
  const proto::World& world = mesh->world();
  const proto::SlotId self = world.members[static_cast<std::size_t>(mesh->rank())].slot_id;
  UcxCommunicator::Group group;
  group.communicator = {options.instance.value, 0, static_cast<std::uint32_t>(options.channel)};
  group.ranks = options.ranks;
  for (std::uint32_t r = 0; options.ranks.empty() && r < world.size(); ++r)
    group.ranks.push_back(static_cast<int>(r));
  if (std::ranges::adjacent_find(group.ranks, std::greater_equal{}) != group.ranks.end()) {
    return base::invalid_argument("make_ucx: the ranks must be ascending");
  }
  const auto mine = std::ranges::find(group.ranks, mesh->rank());
  if (mine == group.ranks.end()) {
    return base::invalid_argument(fmt::format(
        "make_ucx: rank {} is not among the {} ranks of the communicator", mesh->rank(), group.ranks.size()));
  }
  group.rank = static_cast<int>(mine - group.ranks.begin());
  CommunicatorOptions here = options;
  here.ranks.clear();
  for (const int r : group.ranks) {
    if (r < 0 || r >= static_cast<int>(world.size())) {
      return base::invalid_argument(
          fmt::format("make_ucx: rank {} of a World of {} members", r, world.size()));
    }
    if (world.members[static_cast<std::size_t>(r)].slot_id.node == self.node) here.ranks.push_back(r);
  }
  auto local = open_shm(mesh->arena(), world, self, here);
  if (!local.ok()) return local.status();
  group.local = std::move(*local);
  auto engine = std::make_shared<Engine>(std::move(mesh), group.local->share_engine());
  return UcxCommunicator::open(std::move(engine), std::move(group));
}

}  // namespace regroup::collective
