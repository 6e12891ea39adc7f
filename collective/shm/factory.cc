// Opens the communicators of a World, and those of groups split from them.
#include "collective/shm/factory.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/status.h"
#include "collective/shm/communicator.h"

namespace regroup::collective::shm {
namespace {

using base::Result;
using base::Status;

constexpr std::uint64_t kPositions = (1ULL << 40) - 1;

Result<reduce::TreeFold> fold_of_ranks(std::size_t size) {
  std::vector<proto::Interval> leaves;
  for (std::uint32_t i = 0; i < size; ++i) leaves.push_back({i, i + 1});
  return reduce::TreeFold::compile(leaves, static_cast<std::uint32_t>(size));
}

// What each member publishes in split().
struct SplitRequest {
  std::int32_t color;
  std::uint32_t free;      // one bit per group channel: 1 if this member does not hold it
  std::uint64_t position;  // highest position that any of these channels had in this generation
};

SplitRequest split_request_of(const shmem::Arena& arena, proto::SlotIndex self,
                              proto::Generation generation, int color) {
  SplitRequest request{color, 0, 0};
  const BounceBuffer& buffer = bounce_buffer_of(arena, self);
  for (std::size_t i = 0; i < kGroups; ++i) {
    const std::uint64_t instance = buffer.groups[i].instance.load(std::memory_order_relaxed);
    if (buffer.groups[i].held.load(std::memory_order_relaxed) != generation)
      request.free |= 1U << i;
    if (instance >> 40 == generation)
      request.position = std::max(request.position, instance & kPositions);
  }
  return request;
}

}  // namespace

void release_channel(shmem::Channel& channel) { channel.held.store(0, std::memory_order_relaxed); }

Result<std::unique_ptr<Communicator>> ShmCommunicator::split(int color, base::TimePoint deadline) {
  REGROUP_ASSIGN_OR_RETURN(auto part, split_local(color, deadline));
  return std::unique_ptr<Communicator>(std::move(part));
}

Result<std::unique_ptr<LocalCommunicator>> ShmCommunicator::split_local(int color,
                                                                        base::TimePoint deadline) {
  const shmem::Arena& arena = engine_->arena();
  engine_->has_groups = true;  // in all members, since split() is collective
  const SplitRequest mine = split_request_of(arena, engine_->self(), engine_->generation(), color);
  std::vector<SplitRequest> requests(static_cast<std::size_t>(size()));
  REGROUP_RETURN_IF_ERROR(run(Operation::allgather(std::as_bytes(std::span(&mine, 1)),
                                                   std::as_writable_bytes(std::span(requests))),
                              deadline));
  if (color < 0) return std::unique_ptr<LocalCommunicator>();
  std::uint32_t free = ~0U;
  Group group;
  // While groups exist, every operation ends with a synchronisation point.
  group.synchronised = true;
  for (std::size_t r = 0; r < requests.size(); ++r) {
    if (requests[r].color != color) continue;
    if (static_cast<int>(r) == rank_) group.rank = static_cast<int>(group.slots.size());
    free &= requests[r].free;
    group.instance.value = std::max(group.instance.value, requests[r].position + 1);
    group.slots.push_back(data_.buffers().slots()[r]);
  }
  if (free == 0) {
    return Status(
        base::Code::kResourceExhausted,
        fmt::format(
            "split: the {} members of color {} have no channel in common of the {} that each "
            "can hold",
            group.slots.size(), color, kGroups));
  }
  const auto index = static_cast<std::size_t>(std::countr_zero(free));
  for (const proto::SlotIndex slot : group.slots) {
    group.peers.push_back({&arena.member_slot(slot), &bounce_buffer_of(arena, slot).groups[index]});
  }
  bounce_buffer_of(arena, engine_->self())
      .groups[index]
      .held.store(engine_->generation(), std::memory_order_relaxed);
  REGROUP_ASSIGN_OR_RETURN(auto fold, fold_of_ranks(group.slots.size()));
  return std::unique_ptr<LocalCommunicator>(
      std::make_unique<ShmCommunicator>(engine_, std::move(group), std::move(fold)));
}

Result<std::unique_ptr<Communicator>> make_shm(const shmem::Arena& arena, const proto::World& world,
                                               proto::SlotId self,
                                               const CommunicatorOptions& options,
                                               const ShmOptions& shm) {
  REGROUP_ASSIGN_OR_RETURN(auto out, open_shm(arena, world, self, options, shm));
  return std::unique_ptr<Communicator>(std::move(out));
}

Result<std::unique_ptr<LocalCommunicator>> make_local_shm(const shmem::Arena& arena,
                                                          const proto::World& world,
                                                          proto::SlotId self,
                                                          const CommunicatorOptions& options,
                                                          const ShmOptions& shm) {
  REGROUP_ASSIGN_OR_RETURN(auto out, open_shm(arena, world, self, options, shm));
  return std::unique_ptr<LocalCommunicator>(std::move(out));
}

Result<std::unique_ptr<ShmCommunicator>> open_shm(const shmem::Arena& arena,
                                                  const proto::World& world, proto::SlotId self,
                                                  const CommunicatorOptions& options,
                                                  const ShmOptions& shm) {
  REGROUP_ASSIGN_OR_RETURN(auto ranks, ranks_of(world, options));
  ShmCommunicator::Group group;
  group.rank = -1;
  group.instance = options.instance;
  for (int r : ranks) {
    const proto::SlotId slot_id = world.members[static_cast<std::size_t>(r)].slot_id;
    if (slot_id.node != self.node || slot_id.slot >= arena.spec().slots) {
      return base::invalid_argument(
          fmt::format("make_shm: rank {} is at node {} slot {}, not in the arena of "
                      "node {} with {} slots",
                      r, slot_id.node, slot_id.slot, self.node, arena.spec().slots));
    }
    if (slot_id == self) group.rank = static_cast<int>(group.slots.size());
    shmem::MemberSlot& member_slot = arena.member_slot(slot_id.slot);
    group.slots.push_back(slot_id.slot);
    group.peers.push_back(
        {&member_slot, &member_slot.channels[static_cast<std::size_t>(options.channel)]});
  }
  if (group.rank < 0) {
    return base::invalid_argument(
        fmt::format("make_shm: node {} slot {} is not among the {} members of generation {}",
                    self.node, self.slot, group.slots.size(), world.generation));
  }
  REGROUP_ASSIGN_OR_RETURN(auto fold, fold_of_ranks(group.slots.size()));
  const auto here = std::ranges::count(world.members, self.node,
                                       [](const proto::WorldMember& m) { return m.slot_id.node; });
  auto engine = std::make_shared<ProgressEngine>(arena, world.generation, options.instance,
                                                 self.slot, static_cast<std::size_t>(here), shm);
  return std::make_unique<ShmCommunicator>(std::move(engine), std::move(group), std::move(fold));
}

}  // namespace regroup::collective::shm
