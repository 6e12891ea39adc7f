// Lookups in a World.
#include "proto/world.h"

#include <cassert>

namespace regroup::proto {

int World::rank_of(SlotId slot_id) const {
  for (std::size_t r = 0; r < members.size(); ++r) {
    if (members[r].slot_id == slot_id) return static_cast<int>(r);
  }
  return -1;
}

int World::rank_of(MemberId id) const {
  for (std::size_t r = 0; r < members.size(); ++r) {
    if (members[r].id == id) return static_cast<int>(r);
  }
  return -1;
}

std::vector<SlotId> owners_of(const World& world, Step step) {
  assert(step > world.resume.step());
  if (step == world.resume.step() + 1) return world.plan;
  std::vector<SlotId> owners(world.shards);
  for (std::uint32_t rank = 0; rank < world.size(); ++rank) {
    const Interval share = share_of_rank(world.shards, world.size(), rank);
    for (std::uint32_t leaf = share.begin; leaf < share.end; ++leaf)
      owners[leaf] = world.members[rank].slot_id;
  }
  return owners;
}

}  // namespace regroup::proto
