// Operations and their synchronisation points.
//
// Why no member overwrites a chunk that a slow peer still reads. Epoch k is the time between
// synchronisation points k and k + 1. The owner of a chunk writes it in epoch k and one slice of it
// again in k + 1; its peers read it in k + 1 and k + 2. The data of three consecutive epochs does
// not overlap (SlotRing), so the owner writes the same memory again in k + 3 at the earliest: after
// point k + 3, where every member has finished epoch k + 2, whatever the operations are. Hence no
// operation needs an extra point at its end. A member that leaves after its own arrival
// (may_exit_eagerly()) waits for the others at that point before it writes anything for its next
// operation. Payloads are written before point k and read after it; there are two of them, used in
// turn. Epochs count from 0 in each communicator, so its members synchronise once before they write
// the first chunk or payload; between generations, the generation fence does the same. Groups share
// the bounce buffer but count their own epochs: while groups exist, each operation ends with a
// synchronisation point (ProgressEngine::has_groups).
//
// Why no member changes memory that peers read in place, in the arena or by CMA (single_copy.cc):
// its owner stays in the operation until a synchronisation point after those reads, and never
// leaves such an operation eagerly. A member that leaves because it failed withdraws its canary
// first (ProgressEngine::fail, cma.h), so that a reader can tell that its data is invalid, as it
// can for a process that is gone or was replaced. In these cases, and when the kernel refuses the
// read, all members learn so at the next synchronisation point; then the data goes through the
// bounce buffers as if nothing had been read.
#include "collective/shm/communicator.h"

#include <fmt/format.h>

#include <utility>

#include "base/status.h"

namespace regroup::collective::shm {

using base::Result;
using base::Status;

namespace {

// Sums the slice of rank `rank` of `size`.
void sum_slice(const SliceSum& sum, int rank, int size, proto::Generation generation) {
  const reduce::ByteRange mine = reduce::slice_of(sum.result.size(), rank, size);
  begin_sum(sum.blocks, generation);
  sum.fold.run(sum.inputs, mine, sum.result.data() + mine.begin, sum.dtype, Op::kSum, sum.stores);
  if (sum.stores == reduce::Stores::kStream)
    reduce::complete_stores();  // the arrival that follows may not fence
}

}  // namespace

// True if `o` touches memory that members of an earlier generation might still read.
bool ShmCommunicator::is_shared(const Operation& o) const {
  return size() > 1 && o.kind != Kind::kBarrier && o.block(size()) > 0;
}

ShmCommunicator::ShmCommunicator(std::shared_ptr<ProgressEngine> engine, Group group,
                                 reduce::TreeFold ranks_fold)
    : engine_(std::move(engine)),
      rank_(group.rank),
      channel_(group.peers[static_cast<std::size_t>(group.rank)].channel),
      sync_(engine_->generation(), group.instance, std::move(group.peers), group.rank),
      data_({engine_->arena(), sync_, engine_->canary(), engine_->core_use(), engine_->numa_node()},
            std::move(group.slots), rank_, std::move(ranks_fold), engine_->store_policy(),
            engine_->single_copy()),
      synchronised_(group.synchronised) {}

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
      message ? engine_->start_message(
                    *this, operation,
                    data_.buffers().slots()[static_cast<std::size_t>(operation.root)], deadline)
              : engine_->start(engine_->make_pending(*this, operation, signature, deadline)));
  return Request(this, ticket);
}

Result<bool> ShmCommunicator::advance(Pending& pending, bool thorough) {
  for (;;) {
    auto moved = step(pending, thorough);
    if (!moved.ok() || !*moved) return moved;
    if (pending.state == Pending::State::kWorking && pending.phase == data_.phases()) return true;
  }
}

// Moves `pending` to its next state; false if that would have to wait.
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
      data_.begin_phases(plan_of(pending.operation, planning(), pending.closes, is_part),
                         pending.signature, pending.operation, is_part);
      // A tree reduction writes no bounce buffer.
      pending.state = synchronised_ || alone || !is_shared(pending.operation) ? State::kWorking
                                                                              : State::kFirstSync;
      if (pending.state == State::kFirstSync) REGROUP_RETURN_IF_ERROR(sync({}));
      return true;
    }
    case State::kWorking: {
      const Operation& o = pending.operation;
      const Plan& plan = data_.plan();
      if (pending.phase == 1 && plan.uses_inline_chunks() && !data_.fetch_inline_chunks(o)) {
        return base::data_loss(
            fmt::format("{}: all ranks have arrived, but the data of rank {} is missing",
                        name_of(o.kind), data_.missing_rank()));
      }
      if (plan.single_copy() && pending.phase == 1) REGROUP_RETURN_IF_ERROR(read_all(pending));
      if (pending.slice_sum != nullptr && pending.phase == 0)
        sum_slice(*pending.slice_sum, rank_, size(), engine_->generation());
      const Input payload = data_.work(o, pending.phase);
      pending.phase += 1;
      const bool last = pending.phase == data_.phases();
      if (last && (!pending.closes || alone)) return true;
      pending.state = last ? State::kFinalSync : State::kSyncing;
      REGROUP_RETURN_IF_ERROR(sync(payload));
      if (!last && !pending.closes && data_.may_exit_eagerly(o, pending.phase)) {
        exited_eagerly_ = true;
        data_.deliver_own(o);
        pending.phase = data_.phases();
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
      engine_->on_sync(data_.buffers().slots());
      synchronised_ = synchronised_ || pending.state == State::kFirstSync;
      if (pending.state == State::kSyncing && pending.phase == 1)
        data_.collect_offsets(pending.operation);
      if (data_.plan().single_copy() && pending.state == State::kSyncing && pending.phase == 2)
        data_.collect_votes();
      exited_eagerly_ = false;
      pending.state = pending.state == State::kCatchingUp ? State::kNew : State::kWorking;
      return true;
    }
  }
  return false;
}

base::Status ShmCommunicator::read_all(const Pending& pending) {
  return data_.read_all(pending.operation, [&](std::size_t rank) -> Status {
    REGROUP_RETURN_IF_ERROR(engine_->check());
    if (base::SystemClock().now() < pending.deadline) return {};
    return base::deadline_exceeded(
        fmt::format("{}: the memory of rank {} was not read in time in generation {}",
                    name_of(pending.operation.kind), rank, engine_->generation()));
  });
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
  REGROUP_ASSIGN_OR_RETURN(auto fold, reduce::TreeFold::compile(nodes, leaf_count));
  const SliceSum sum{
      fold,
      inputs,
      result,
      dtype,
      stores_of_shared_result(result.size(), data_.buffers().ranks(), data_.buffers().capacity()),
      blocks};
  // Phase 0 of this barrier runs sum_slice().
  Pending pending =
      engine_->make_pending(*this, Operation::barrier(),
                            tree_reduce_signature(dtype, leaf_count, result.size()), deadline);
  pending.slice_sum = &sum;
  auto ticket = engine_->start(pending);
  return ticket.ok() ? engine_->wait(*ticket) : ticket.status();
}

}  // namespace regroup::collective::shm
