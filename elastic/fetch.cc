// A share is three messages: the length of the state, the CRCs of the share's chunks, its bytes.
#include "elastic/fetch.h"

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "elastic/donors.h"
#include "elastic/share.h"
#include "elastic/state_donation.h"

namespace regroup::elastic {
namespace {

using base::Status;
using collective::Communicator;
using collective::Operation;

Status receive_share(const shmem::Arena& arena, Communicator& communicator, int from,
                     std::size_t writer, std::size_t writers, std::optional<std::uint64_t>* used,
                     base::TimePoint deadline) {
  std::uint64_t length = 0;
  REGROUP_RETURN_IF_ERROR(communicator.run(
      Operation::receive(std::as_writable_bytes(std::span(&length, 1)), from), deadline));
  REGROUP_RETURN_IF_ERROR(check_length(arena, from, length, *used));
  *used = length;
  const Chunks chunks = share_of(writer, writers, length);
  if (chunks.begin == chunks.end) return {};
  const Share share(arena, chunks, length);
  REGROUP_RETURN_IF_ERROR(communicator.run(Operation::receive(share.crcs, from), deadline));
  return communicator.run(Operation::receive(share.data, from), deadline);
}

}  // namespace

Status send_state(Participant& self, Communicator& communicator, base::TimePoint deadline) {
  const proto::World& world = self.world();
  const auto writers = writers_of_snapshot(world, self.slot_id().node);
  const auto mine =
      static_cast<std::size_t>(std::ranges::find(writers, self.slot_id()) - writers.begin());
  const std::uint64_t used = self.arena().snapshot_used().load(std::memory_order_relaxed);
  for (const int to : fetchers_from(world, self.slot_id().node)) {
    REGROUP_RETURN_IF_ERROR(
        communicator.run(Operation::send(std::as_bytes(std::span(&used, 1)), to), deadline));
    const Chunks chunks = share_of(mine, writers.size(), used);
    if (chunks.begin == chunks.end) continue;
    const Share share(self.arena(), chunks, used);
    REGROUP_RETURN_IF_ERROR(communicator.run(Operation::send(share.crcs, to), deadline));
    REGROUP_RETURN_IF_ERROR(communicator.run(Operation::send(share.data, to), deadline));
  }
  return {};
}

Status permit_fetchers(const proto::World& world, Communicator& communicator,
                       base::TimePoint deadline) {
  if (!rank_0_has_state(world)) return {};
  const std::uint64_t step = world.resume.step();
  for (const int to : all_fetchers(world))
    REGROUP_RETURN_IF_ERROR(
        communicator.run(Operation::send(std::as_bytes(std::span(&step, 1)), to), deadline));
  return {};
}

Status await_permit(const proto::World& world, Communicator& communicator,
                    base::TimePoint deadline) {
  if (!rank_0_has_state(world)) return {};
  std::uint64_t step = 0;
  return communicator.run(Operation::receive(std::as_writable_bytes(std::span(&step, 1)), 0),
                          deadline);
}

Status fetch_state(Participant& self, Communicator& communicator, base::TimePoint deadline,
                   const std::function<Status()>& permitted) {
  const proto::World& world = self.world();
  const proto::NodeId here = self.slot_id().node;
  if (fetcher_of(world, here) != self.rank()) return {};
  REGROUP_RETURN_IF_ERROR(no_old_readers(self));
  const auto writers = writers_of_snapshot(world, source_of(world, here));
  std::optional<std::uint64_t> used;
  for (std::size_t writer = 0; writer < writers.size(); ++writer) {
    REGROUP_RETURN_IF_ERROR(receive_share(self.arena(), communicator,
                                          world.rank_of(writers[writer]), writer, writers.size(),
                                          &used, deadline));
  }
  REGROUP_RETURN_IF_ERROR(permitted());
  self.arena().snapshot_used().store(used.value_or(0), std::memory_order_relaxed);
  self.own_slot().donated.store(world.generation, std::memory_order_release);
  shmem::ring_all(self.arena(), self.slot_id().slot);
  return {};
}

}  // namespace regroup::elastic
