// The arena's snapshot serves as the board on which the ranks share words.
#include "tools/bench/job.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/clock.h"
#include "collective/shm/factory.h"
#include "shmem/generation_fence.h"
#include "tools/bench/descriptor_passing.h"
#include "tools/bench/start_barrier.h"

namespace regroup::bench {
namespace {

constexpr proto::Generation kGeneration = 1;

shmem::ArenaSpec spec_of(const Place& place, const Room& room) {
  const auto ranks = static_cast<std::uint32_t>(place.size);
  const std::size_t words = (room.words + 1) * sizeof(std::uint64_t);
  return {.slots = ranks,
          .elements = (room.buffer + 3) / 4,
          .snapshot_bytes =
              ((words + 127) / 128 * 128 + START_SLOT) * static_cast<std::size_t>(place.size)};
}

base::Result<shmem::Arena> share_arena(const Place& place, const Room& room,
                                       const std::string& agreed, base::TimePoint deadline) {
  const std::string name = "regroup-bench-" + place.job;
  if (place.rank != 0) {
    auto fd = take_descriptor(name, place.rank, agreed, deadline);
    return fd.ok() ? shmem::Arena::open(std::move(*fd)) : fd.status();
  }
  auto arena = shmem::Arena::create(spec_of(place, room));
  if (!arena.ok()) return arena;
  for (int rank = 0; rank < place.size; ++rank) {
    arena->assign_slot(static_cast<proto::SlotIndex>(rank), static_cast<proto::MemberId>(rank));
  }
  REGROUP_RETURN_IF_ERROR(give_descriptor(name, arena->memfd(), place.size, agreed, deadline));
  return arena;
}

}  // namespace

base::Result<std::unique_ptr<Job>> Job::form(const Place& place, const Room& room,
                                             const std::string& agreed, base::Duration timeout) {
  REGROUP_ASSIGN_OR_RETURN(auto arena,
                           share_arena(place, room, agreed, base::SystemClock().now() + timeout));
  const auto slot = static_cast<proto::SlotIndex>(place.rank);
  REGROUP_RETURN_IF_ERROR(arena.reserve_slot(slot));
  std::unique_ptr<Job> job(new Job(place, std::move(arena), room.words, timeout));
  REGROUP_RETURN_IF_ERROR(job->open_communicator());
  REGROUP_RETURN_IF_ERROR(job->barrier());
  job->arena_.populate(slot);  // all ranks have reserved theirs
  return job;
}

Job::Job(Place place, shmem::Arena arena, std::size_t words, base::Duration timeout)
    : place_(std::move(place)), arena_(std::move(arena)), words_(words), timeout_(timeout) {}

base::Status Job::open_communicator() {
  proto::World world;
  world.generation = kGeneration;
  for (int rank = 0; rank < place_.size; ++rank) {
    world.members.push_back({.id = static_cast<proto::MemberId>(rank),
                             .slot_id = {0, static_cast<proto::SlotIndex>(rank)}});
  }
  const auto slot = static_cast<proto::SlotIndex>(place_.rank);
  shmem::hold_fence<shmem::RealPolicy>(arena_.member_slot(slot).left_generation, kGeneration);
  REGROUP_ASSIGN_OR_RETURN(communicator_, collective::shm::make_shm(arena_, world, {0, slot}));
  return {};
}

// The snapshot holds the boards, then the slots of the start barrier.
std::uint64_t* Job::board(int rank) const {
  const std::size_t each =
      arena_.spec().snapshot_bytes / static_cast<std::size_t>(place_.size) - START_SLOT;
  return reinterpret_cast<std::uint64_t*>(arena_.snapshot().data() +
                                          each * static_cast<std::size_t>(rank));
}

char* Job::start_slots() const {
  const std::span<std::byte> room = arena_.snapshot();
  const std::size_t bytes = START_SLOT * static_cast<std::size_t>(place_.size);
  return reinterpret_cast<char*>(room.data()) + arena_.spec().snapshot_bytes - bytes;
}

base::Result<std::uint64_t> Job::start_together() {
  REGROUP_RETURN_IF_ERROR(barrier());
  started_ = ::start_together(start_slots(), rank(), size(), started_);
  if (started_ == 0)
    return base::deadline_exceeded("another rank has not arrived at the start barrier within 60 s");
  return started_;
}

base::Result<std::vector<std::vector<std::uint64_t>>> Job::share(
    std::span<const std::uint64_t> mine) {
  assert(mine.size() <= words_);
  board(rank())[0] = mine.size();
  std::ranges::copy(mine, board(rank()) + 1);
  REGROUP_RETURN_IF_ERROR(barrier());
  std::vector<std::vector<std::uint64_t>> out;
  for (int r = 0; r < size(); ++r) out.emplace_back(board(r) + 1, board(r) + 1 + board(r)[0]);
  REGROUP_RETURN_IF_ERROR(barrier());  // no rank overwrites its board before all have read it
  return out;
}

base::Result<std::uint64_t> Job::sum(std::uint64_t mine) {
  REGROUP_ASSIGN_OR_RETURN(auto all, share(std::span(&mine, 1)));
  std::uint64_t sum = 0;
  for (const auto& words : all) sum += words[0];
  return sum;
}

}  // namespace regroup::bench
