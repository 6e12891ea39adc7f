// An arena, with the test as its agent.
#include "tests/collective/shm/job.h"

#include <unistd.h>

#include "collective/shm/factory.h"
#include "shmem/generation_fence.h"
#include "tests/collective/harness.h"

namespace regroup::collective::testing {
namespace {

class ShmJob final : public TestJob {
 public:
  ShmJob(shmem::Arena arena, shm::SingleCopyMode single_copy)
      : arena_(std::move(arena)), single_copy_(single_copy) {}

  base::Result<std::unique_ptr<Communicator>> open(const proto::World& world, int rank) override {
    shmem::hold_fence<shmem::RealPolicy>(member_slot(rank).left_generation, world.generation);
    shm::ShmOptions options;
    options.single_copy = single_copy_;
    return shm::make_shm(arena_, world, {0, static_cast<proto::SlotIndex>(rank)}, {}, options);
  }
  void leave(proto::Generation g, int rank) override {
    shmem::leave_generation<shmem::RealPolicy>(member_slot(rank).left_generation, g);
    shmem::ring_all(arena_);
  }
  void revoke(proto::Generation g) override { revoke_all(arena_, g); }
  void bury(int rank) override {
    member_slot(rank).dead.store(1);
    shmem::ring_all(arena_);
  }
  void replace(int rank) override {
    arena_.assign_slot(static_cast<proto::SlotIndex>(rank), next_id_++);
    member_slot(rank).revoked_up_to.store(0);  // the test announces no World in the arena
  }
  std::unique_ptr<TestJob> in_child() override {
    auto arena = shmem::Arena::open(base::Fd(::dup(arena_.memfd())));
    return arena.ok() ? std::make_unique<ShmJob>(std::move(*arena), single_copy_) : nullptr;
  }

 private:
  [[nodiscard]] shmem::MemberSlot& member_slot(int rank) const {
    return arena_.member_slot(static_cast<proto::SlotIndex>(rank));
  }

  shmem::Arena arena_;
  const shm::SingleCopyMode single_copy_;
  proto::MemberId next_id_ = 1000;
};

std::unique_ptr<TestJob> make_job(int ranks, shm::SingleCopyMode single_copy) {
  return std::make_unique<ShmJob>(make_arena({.slots = static_cast<std::uint32_t>(ranks)}),
                                  single_copy);
}

}  // namespace

std::unique_ptr<TestJob> make_shm_job(int ranks) {
  return make_job(ranks, shm::SingleCopyMode::kAuto);
}
std::unique_ptr<TestJob> make_single_copy_job(int ranks) {
  return make_job(ranks, shm::SingleCopyMode::kAlways);
}

}  // namespace regroup::collective::testing
