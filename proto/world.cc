// Lookups in a World.
#include "proto/world.h"

#include <cassert>

namespace regroup::proto {

int World::rank_of(Seat seat) const {
  for (std::size_t r = 0; r < members.size(); ++r) {
    if (members[r].seat == seat) return static_cast<int>(r);
  }
  return -1;
}

int World::rank_of(MemberId id) const {
  for (std::size_t r = 0; r < members.size(); ++r) {
    if (members[r].id == id) return static_cast<int>(r);
  }
  return -1;
}

std::vector<Seat> owners_of(const World& world, Step step) {
  assert(step > world.resume.step());
  if (step == world.resume.step() + 1) return world.plan;
  std::vector<Seat> owners(world.shards);
  for (std::uint32_t rank = 0; rank < world.size(); ++rank) {
    const Interval share = share_of_rank(world.shards, world.size(), rank);
    for (std::uint32_t leaf = share.begin; leaf < share.end; ++leaf) owners[leaf] = world.members[rank].seat;
  }
  return owners;
}

}  // namespace regroup::proto
