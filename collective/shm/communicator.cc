// Operations and their synchronisation points.
//
// Why no member overwrites a chunk that a slow peer still reads. Epoch k lies between
// synchronisation points k and k + 1. The chunk of epoch k is written by its owner in epoch k, one
// slice of it again by the same owner in k + 1, and read in k + 1 and k + 2. The data of three
// consecutive epochs does not overlap (SlotRing), so the memory is written again in k + 3 at the
// earliest: after point k + 3, where every member has finished epoch k + 2, whatever the operations
// are. Hence no extra point is needed at the end of an operation. A member that leaves after its
// own arrival (may_exit_eagerly()) waits for the others at that point before it writes anything for
// its next operation. Payloads are written before point k and read after it; there are two of them.
// Epochs count from 0 in each communicator, so its members synchronise once before the first chunk
// or payload is written. Between generations the generation fence does the same. Groups share the
// bounce buffer but count their own epochs: while they exist, each operation ends with a
// synchronisation point (ProgressEngine::has_groups).
//
// Why no member changes memory that peers read in place, in the arena or by CMA (single_copy.cc):
// its owner stays in the operation until a synchronisation point after those reads, and never
// leaves such an operation eagerly. A member that leaves because it failed withdraws its canary
// first (ProgressEngine::fail, cma.h), so a reader can tell that its data is invalid, as it can for
// a process that is gone or was replaced. Then, or when the kernel refuses, the data goes through
// the bounce buffers as if nothing had been read, from the synchronisation point on at which all
// members learn it.
#include "collective/shm/communicator.h"

#include <fmt/format.h>

#include <utility>

#include "base/status.h"

namespace regroup::collective {

using base::Result;
using base::Status;

ShmCommunicator::ShmCommunicator(std::shared_ptr<ProgressEngine> engine, Group group,
                                 TreeFold ranks_fold)
    : engine_(std::move(engine)),
      rank_(group.rank),
      channel_(group.peers[static_cast<std::size_t>(group.rank)].channel),
      ranks_fold_(std::move(ranks_fold)),
      buffers_(engine_->arena(), std::move(group.slots)),
      tuners_(engine_->store_policy()),
      sync_(engine_->generation(), group.instance, std::move(group.peers), group.rank),
      synchronised_(group.synchronised),
      inputs_(buffers_.ranks()),
      results_(buffers_.ranks()),
      sources_(buffers_.ranks()),
      single_copy_(engine_->single_copy()) {}

ShmCommunicator::~ShmCommunicator() {
  engine_->detach(*this);
  release_channel(*channel_);
}

Result<Request> ShmCommunicator::start(const Operation& operation, base::TimePoint deadline) {
  return start_part(signature_of(operation, size()), operation, deadline);
}

Result<Request> ShmCommunicator::start_part(const CollectiveSignature& signature,
                                            const Operation& operation, base::TimePoint deadline) {
  REGROUP_RETURN_IF_ERROR(operation.check(rank_, size()));
  const bool message = operation.kind == Kind::kSend || operation.kind == Kind::kReceive;
  REGROUP_ASSIGN_OR_RETURN(
      auto ticket,
      message ? engine_->start_message(*this, operation,
                                       buffers_.slots()[static_cast<std::size_t>(operation.root)],
                                       deadline)
              : engine_->start(engine_->make_pending(*this, operation, signature, deadline)));
  return Request(this, ticket);
}

Result<bool> ShmCommunicator::advance(Pending& pending, bool thorough) {
  for (;;) {
    auto moved = step(pending, thorough);
    if (!moved.ok() || !*moved) return moved;
    if (pending.state == Pending::State::kWorking && pending.phase == pending.phases) return true;
  }
}

// True if `pending` moved one state further.
Result<bool> ShmCommunicator::step(Pending& pending, bool thorough) {
  using State = Pending::State;
  const bool alone = size() == 1;
  const auto sync = [&](std::span<const std::byte> payload) {
    REGROUP_RETURN_IF_ERROR(engine_->check());
    return alone ? Status() : sync_.arrive(pending.signature, payload);
  };
  switch (pending.state) {
    case State::kNew: {
      if (exited_eagerly_) {
        pending.state = State::kCatchingUp;
        return true;
      }
      const bool sums = pending.slice_sum != nullptr;
      if ((sums || is_shared(pending.operation)) && !engine_->fence_is_open()) return false;
      const bool is_part = !sums && pending.signature != signature_of(pending.operation, size());
      begin(pending, plan_of(pending.operation, planning(), pending.closes, is_part), is_part);
      // A tree reduction writes no bounce buffer.
      pending.state = synchronised_ || alone || !is_shared(pending.operation) ? State::kWorking
                                                                              : State::kFirstSync;
      if (pending.state == State::kFirstSync) REGROUP_RETURN_IF_ERROR(sync({}));
      return true;
    }
    case State::kWorking: {
      if (pending.phase == 1 && plan_.uses_inline_chunks() &&
          !fetch_inline_chunks(pending.operation)) {
        return base::data_loss(
            fmt::format("{}: all ranks have arrived, but the data of rank {} is missing",
                        name_of(pending.operation.kind), fetched_ranks_));
      }
      if (plan_.single_copy() && pending.phase == 1) REGROUP_RETURN_IF_ERROR(read_all(pending));
      const auto payload = work(pending);
      if (plan_.streams()) complete_stores();  // the arrival that follows may not fence
      pending.phase += 1;
      const bool last = pending.phase == pending.phases;
      if (last && (!pending.closes || alone)) return true;
      pending.state = last ? State::kFinalSync : State::kSyncing;
      REGROUP_RETURN_IF_ERROR(sync(payload));
      if (may_exit_eagerly(pending)) {
        exited_eagerly_ = true;
        deliver_own(pending.operation);
        pending.phase = pending.phases;
        pending.state = State::kWorking;
      }
      return true;
    }
    case State::kCatchingUp:
    case State::kFirstSync:
    case State::kSyncing:
    case State::kFinalSync: {
      auto here = alone ? Result<bool>(true) : sync_.all_arrived(thorough);
      if (sync_.is_over()) {
        return base::revoked(fmt::format("generation {} is over", engine_->generation()));
      }
      if (!here.ok() || !*here) return here;
      engine_->on_sync(buffers_.slots());
      synchronised_ = synchronised_ || pending.state == State::kFirstSync;
      if (pending.state == State::kSyncing && pending.phase == 1) collect_offsets(pending);
      if (plan_.single_copy() && pending.state == State::kSyncing && pending.phase == 2)
        collect_votes(pending);
      exited_eagerly_ = false;
      pending.state = pending.state == State::kCatchingUp ? State::kNew : State::kWorking;
      return true;
    }
  }
  return false;
}

// True when the peers find this member's contribution without its help and it needs nothing from
// them: its last synchronisation point can wait until the next operation. Where some contributions
// lie in the arena there is one more point, which this member must have learnt of.
bool ShmCommunicator::may_exit_eagerly(const Pending& pending) const {
  const bool last =
      pending.state == Pending::State::kSyncing && pending.phase + 1 == pending.phases;
  const bool heard = plan_.is_copied() || from_root(pending.operation.kind) || pending.phase > 1;
  return plan_.exits_eagerly && last && heard && offsets_.in == kNotInArena &&
         !plan_.single_copy() && !pending.closes;
}

// Each rank sums its slice; after the barrier that follows, every rank can read the whole result.
Status ShmCommunicator::reduce(std::span<const Partial> partials, std::uint32_t leaf_count,
                               Output result, Dtype dtype, base::TimePoint deadline,
                               const SumBlocks& blocks) {
  REGROUP_RETURN_IF_ERROR(check_partials(partials, result, dtype));
  std::vector<proto::Interval> nodes;
  std::vector<const std::byte*> inputs;
  for (const Partial& partial : partials) {
    nodes.push_back(partial.leaves);
    inputs.push_back(partial.data.data());
  }
  REGROUP_ASSIGN_OR_RETURN(auto fold, TreeFold::compile(nodes, leaf_count));
  const SliceSum sum{fold,
                     inputs,
                     result,
                     dtype,
                     stores_of_shared_result(result.size(), buffers_.ranks(), buffers_.capacity()),
                     blocks};
  Pending pending =
      engine_->make_pending(*this, Operation::barrier(),
                            tree_reduce_signature(dtype, leaf_count, result.size()), deadline);
  pending.slice_sum = &sum;
  auto ticket = engine_->start(pending);
  return ticket.ok() ? engine_->wait(*ticket) : ticket.status();
}

}  // namespace regroup::collective
