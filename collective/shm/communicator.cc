// Operations and their rendezvous.
//
// Why nobody overwrites a chunk that a slow peer still reads: count time in rendezvous; "at time k" is
// between rendezvous k and k+1. The chunk of time k is written by its owner at k, one slice of it again at
// k+1 by the same owner, and read at k+1 and k+2. Three in a row lie apart (Turns), so its place is next
// written at k+3 or later: behind rendezvous k+3, at which everybody has arrived who was through with k+2,
// whatever the operations are. None is needed at the end of one. Who leaves behind its own arrival
// (may_exit_eagerly()) sees all others there before it writes anything for the operation that follows.
// Payloads are written before rendezvous k and read behind it, and there are two of them. Time starts anew
// with each communicator, hence it settles: its members meet once before the first chunk or payload is
// written. Between generations the gate does the same. Groups share the stage, each with a time of its own:
// then each operation ends with a rendezvous (Family::has_groups).
//
// Why nobody changes memory that others read where it is, in the arena or by a copy of the kernel
// (single_copy.cc): its owner is in the operation until a rendezvous behind those reads, and leaves none of
// these early. Who leaves because it failed takes its sign away first (Family::fail, foreign.h): what is read
// then, or from a process that is gone and another in its place, is known to be wrong by who read it. Then,
// or if the kernel refuses, chunks go through the stages as if nothing had been read, from the rendezvous on
// at which all have learnt it.
#include "collective/shm/communicator.h"

#include <fmt/format.h>

#include <utility>

namespace regroup::collective {

using core::Result;
using core::Status;

ShmCommunicator::ShmCommunicator(std::shared_ptr<ProgressEngine> engine, Group group, TreeFold ranks_fold)
    : engine_(std::move(engine)),
      slots_(std::move(group.slots)),
      rank_(group.rank),
      channel_(group.peers[static_cast<std::size_t>(group.rank)].channel),
      ranks_fold_(std::move(ranks_fold)),
      ring_(core::stage_bytes(engine_->arena().spec().slots)),
      tuners_(engine_->store_policy()),
      sync_(engine_->generation(), group.instance, std::move(group.peers), group.rank),
      synchronised_(group.synchronised),
      inputs_(slots_.size()),
      results_(slots_.size()),
      sources_(slots_.size()) {
  for (const core::SlotIndex slot : slots_)
    bounce_buffers_.push_back(&bounce_buffer_of(engine_->arena(), slot));
}

ShmCommunicator::~ShmCommunicator() {
  engine_->detach(*this);
  release_channel(*channel_);
}

Result<Request> ShmCommunicator::start(const Operation& operation, core::TimePoint deadline) {
  return start_part(signature_of(operation, size()), operation, deadline);
}

Result<Request> ShmCommunicator::start_part(const CollectiveSignature& signature, const Operation& operation,
                                            core::TimePoint deadline) {
  REGROUP_RETURN_IF_ERROR(operation.check(rank_, size()));
  const bool message = operation.kind == Kind::kSend || operation.kind == Kind::kReceive;
  auto ticket = message ? engine_->start_message(*this, operation,
                                                 slots_[static_cast<std::size_t>(operation.root)], deadline)
                        : engine_->start(*this, operation, signature, deadline);
  if (!ticket.ok()) return ticket.status();
  return Request(this, *ticket);
}

Result<bool> ShmCommunicator::advance(Pending& pending, bool thorough) {
  for (;;) {
    auto moved = step(pending, thorough);
    if (!moved.ok() || !*moved) return moved;
    if (pending.state == Pending::State::kWorking && pending.phase == pending.phases) return true;
  }
}

// True if it went one state further.
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
      if (is_shared(pending.operation) && !engine_->fence_is_open()) return false;
      const bool is_part = pending.signature != signature_of(pending.operation, size());
      begin(pending, plan_of(pending.operation, pending.closes, is_part), is_part);
      pending.state = synchronised_ || alone || !is_shared(pending.operation) ||
                              pending.operation.kind == Kind::kSumPartials
                          ? State::kWorking
                          : State::kFirstSync;
      if (pending.state == State::kFirstSync) REGROUP_RETURN_IF_ERROR(sync({}));
      return true;
    }
    case State::kWorking: {
      if (pending.phase == 1 && plan_.uses_inline_chunks && !fetch_inline_chunks(pending.operation)) {
        return Status(core::Code::kDataLoss,
                      fmt::format("{}: all have arrived, but what rank {} brought is not there",
                                  name_of(pending.operation.kind), fetched_ranks_));
      }
      if (plan_.single_copy && pending.phase == 1) REGROUP_RETURN_IF_ERROR(read_all(pending));
      const auto payload = work(pending);
      if (plan_.streams()) complete_stores();  // what follows may not publish() anything
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
        return Status(core::Code::kRevoked, fmt::format("generation {} is over", engine_->generation()));
      }
      if (!here.ok() || !*here) return here;
      engine_->on_sync(slots_);
      synchronised_ = synchronised_ || pending.state == State::kFirstSync;
      if (pending.state == State::kSyncing && pending.phase == 1) collect_offsets(pending);
      if (plan_.single_copy && pending.state == State::kSyncing && pending.phase == 2) collect_votes(pending);
      exited_eagerly_ = false;
      pending.state = pending.state == State::kCatchingUp ? State::kNew : State::kWorking;
      return true;
    }
  }
  return false;
}

// Its contribution lies where the others find it without this member, and it wants nothing of them: its last
// rendezvous can wait for the next operation. Where some contributions lie in the arena there is one more,
// of which it has heard.
bool ShmCommunicator::may_exit_eagerly(const Pending& pending) const {
  const bool last = pending.state == Pending::State::kSyncing && pending.phase + 1 == pending.phases;
  const bool heard = plan_.is_copied || from_root(pending.operation.kind) || pending.phase > 1;
  return plan_.exits_eagerly && last && heard && offsets_.in == kNotInArena && !plan_.single_copy &&
         !pending.closes;
}

Status ShmCommunicator::sum_partials(std::span<const Partial> partials, std::uint32_t leaves, Output result,
                                     Dtype dtype, core::TimePoint deadline, const SumBlocks& blocks) {
  std::vector<core::Interval> nodes;
  std::vector<const std::byte*> inputs;
  for (const Partial& partial : partials) {
    if (partial.data.size() != result.size()) {
      return core::invalid_argument(fmt::format("sum_partials: partial [{},{}) has {} bytes, the result {}",
                                                partial.leaves.begin, partial.leaves.end, partial.data.size(),
                                                result.size()));
    }
    if (size_of(dtype) == 2 && dtype != Dtype::kInt16 && partial.leaves.size() > 1) {
      return core::invalid_argument(
          fmt::format("sum_partials: partial [{},{}) of {} was rounded; keep partial sums as float32",
                      partial.leaves.begin, partial.leaves.end, name_of(dtype)));
    }
    nodes.push_back(partial.leaves);
    inputs.push_back(partial.data.data());
  }
  if (result.size() % size_of(dtype) != 0) {
    return core::invalid_argument(fmt::format("sum_partials: {} bytes are not whole elements of {} bytes",
                                              result.size(), size_of(dtype)));
  }
  auto fold = TreeFold::compile(nodes, leaves);
  if (!fold.ok()) return fold.status();
  partials_fold_ = &*fold;
  partials_ = inputs;
  sum_blocks_ = &blocks;
  const Operation operation{Kind::kSumPartials, dtype, Op::kSum, static_cast<int>(leaves), result, result};
  auto ticket = engine_->start(*this, operation, signature_of(operation, size()), deadline);
  return ticket.ok() ? engine_->wait(*ticket) : ticket.status();
}

}  // namespace regroup::collective
