// A short run of the shared-memory communicator with four ranks as threads over one mapping, for
// ThreadSanitizer to watch. Built twice: as shipped, and with the publishing store weakened to
// relaxed. Exit status 0 if every operation succeeded; ThreadSanitizer changes it when it has seen
// a race.
#include <cstdio>
#include <thread>

#include "base/clock.h"
#include "collective/shm/factory.h"
#include "shmem/arena.h"

namespace {

using namespace regroup;

constexpr std::uint32_t kSize = 4;
constexpr int kRounds = 100;

bool run_rank(const shmem::Arena& arena, const proto::World& world, proto::SlotIndex slot) {
  const base::TimePoint deadline = base::SystemClock().now() + std::chrono::seconds(20);
  auto comm = collective::shm::make_shm(arena, world, {0, slot});
  std::vector<std::byte> data(64 << 10);
  for (int k = 0; comm.ok() && k < kRounds; ++k) {
    if (!(*comm)->allreduce(data, data, collective::Dtype::kFloat32, deadline).ok()) return false;
    if (!(*comm)->broadcast(data, k % static_cast<int>(kSize), deadline).ok()) return false;
  }
  return comm.ok();
}

}  // namespace

int main() {
  auto arena = shmem::Arena::create({.slots = kSize});
  if (!arena.ok()) return 1;
  proto::World world;
  world.generation = 1;
  for (proto::SlotIndex slot = 0; slot < kSize; ++slot) {
    arena->assign_slot(slot, slot);
    world.members.push_back({.id = slot, .slot_id = {0, slot}});
  }
  std::atomic<int> good{0};
  {
    std::vector<std::jthread> ranks;
    for (proto::SlotIndex slot = 0; slot < kSize; ++slot) {
      ranks.emplace_back([&, slot] { good += run_rank(*arena, world, slot) ? 1 : 0; });
    }
  }
  std::printf("%d of %u ranks are done\n", good.load(), kSize);
  return good == kSize ? 0 : 1;
}
