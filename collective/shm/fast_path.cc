// The fast path: blocking operations when the queue is empty. Plans are cached by operation. While
// the peers arrive within the spin limit, an operation runs without the queue; one that needs a
// single synchronisation point also runs without the state machine; and between two ranks only the
// computation of the result remains after the peer's arrival.
#include <algorithm>

#include "base/clock.h"
#include "base/status.h"
#include "collective/reduce/standard_arithmetic.h"
#include "collective/shm/communicator.h"

namespace regroup::collective::shm {

using PollResult = SyncPoints::PollResult;

namespace {

// Measured: a broadcast of 8 KiB gains nothing, one of 16 KiB is slower.
constexpr std::size_t kMaxTwoRank = 4 << 10;

bool exchanges(const Operation& o) {
  return o.kind == Kind::kAllgather || o.kind == Kind::kAlltoall;
}

// Stores the result of rank `self` of two; `theirs`: the contribution of the other rank.
void exchange_small(const Operation& o, std::size_t self, const std::byte* theirs) {
  const std::size_t block = o.out.size() / 2, other = 1 - self;
  const std::size_t part = is_split(o.kind) ? block : 0;
  const std::byte* own = o.in.data() + self * part;
  std::byte* to = o.out.data() + self * block;
  if (to != own) reduce::copy_small(to, own, block);
  reduce::copy_small(o.out.data() + other * block, theirs + self * part, block);
}

}  // namespace

base::Status ShmCommunicator::run(const Operation& operation, base::TimePoint deadline) {
  const bool message = operation.kind == Kind::kSend || operation.kind == Kind::kReceive;
  if (message || !engine_->is_idle()) return Communicator::run(operation, deadline);
  const CachedPlan* cached = plan_cache_.find(operation);
  if (cached == nullptr) {
    REGROUP_RETURN_IF_ERROR(operation.check(rank_, size()));
    cached = cache_plan(operation);
  }
  if (!engine_->can_continue()) return engine_->check();
  if (cached == nullptr || engine_->has_groups || !has_caught_up(deadline)) {
    return engine_->run(
        engine_->make_pending(*this, operation, signature_of(operation, size()), deadline));
  }
  if (cached->run_by >= RunBy::kOnePoint && run_fast(*cached, deadline)) return {};
  Pending pending = engine_->make_pending(*this, operation, cached->signature, deadline);
  if (cached->run_by >= RunBy::kOnePoint) {
    pending.state = Pending::State::kSyncing;
    pending.phase = 1;
    return engine_->run(pending, true);
  }
  pending.state = Pending::State::kWorking;
  data_.begin_phases(cached->plan, cached->signature, operation, false);
  return run_unqueued(pending);
}

// Runs from point to point while the peers arrive within the spin limit; otherwise leaves the rest
// to the queue, which also enforces the deadline.
base::Status ShmCommunicator::run_unqueued(Pending& pending) {
  constexpr std::uint64_t kBetweenClocks = 16;
  for (;;) {
    const base::Result<bool> done = advance(pending, false);
    if (!done.ok()) {
      engine_->fail(done.status());
      return engine_->check();
    }
    if (*done) return {};
    PollResult seen = PollResult::kIncomplete;
    for (std::size_t poll = 0; poll < engine_->spin_polls() && seen == PollResult::kIncomplete;
         ++poll) {
      if (!engine_->yield_core(pending.deadline)) break;
      seen = sync_.poll(false);
    }
    const bool is_late =
        pending.phase % kBetweenClocks == 0 && base::SystemClock().now() >= pending.deadline;
    if (seen == PollResult::kIncomplete || is_late)
      return engine_->run(pending, seen == PollResult::kIncomplete);
  }
}

// True if all members have arrived at the point that this member left eagerly; polls within the
// spin limit.
bool ShmCommunicator::has_caught_up(base::TimePoint deadline) {
  for (std::size_t poll = 0; exited_eagerly_ && poll < engine_->spin_polls(); ++poll) {
    if (poll > 0 && !engine_->yield_core(deadline)) break;
    const PollResult seen = sync_.poll(true);
    exited_eagerly_ = seen != PollResult::kComplete;
    if (seen == PollResult::kMismatch) break;
  }
  return !exited_eagerly_;
}

// Plans `o` and caches the plan. Null unless the members have synchronised before.
const CachedPlan* ShmCommunicator::cache_plan(const Operation& o) {
  if (!synchronised_ || !engine_->core_use().is_counted() || !engine_->fence_is_open())
    return nullptr;
  if (size() == 1) return nullptr;
  const Plan plan = plan_of(o, planning(), false, false);
  CachedPlan cached{o, signature_of(o, size()), plan};
  const bool is_fast = plan.is_copied() && plan.block <= plan.piece && !plan.by_slices;
  if (is_fast) cached.run_by = RunBy::kOnePoint;
  const bool is_plain = data_.store_choice(o.kind, plan.placed) == reduce::Stores::kPlain;
  const bool is_small = !plan.uses_bounce_buffer() || (is_plain && plan.placed <= kMaxTwoRank);
  if (is_fast && size() == 2 && plan.block > 0 && is_small) {
    if (o.kind == Kind::kAllreduce && plan.in_arrival())
      cached.close = data_.ranks_fold().close_of(o.dtype, o.op);
    cached.divisor = data_.ranks_fold().divisor_of(o.op);
    cached.count = plan.block / size_of(o.dtype);
    if (cached.close != nullptr || o.kind == Kind::kBroadcast ||
        (plan.in_arrival() && exchanges(o)))
      cached.run_by = RunBy::kTwoRanks;
  }
  return &plan_cache_.add(cached);
}

// Arrives, and completes the operation if the peers arrive within the spin limit; else returns
// false.
bool ShmCommunicator::run_fast(const CachedPlan& cached, base::TimePoint deadline) {
  const Operation& o = cached.operation;
  if (cached.run_by == RunBy::kTwoRanks && engine_->spins()) return run_two_rank(cached);
  data_.begin(cached.plan, cached.signature, o);
  const Input payload = data_.send(o);
  if (cached.plan.exits_eagerly) {
    sync_.signal_and_leave(cached.signature, payload);
    exited_eagerly_ = true;
    data_.deliver_own(o);
    data_.prefetch_next(o, cached.plan);
    return true;
  }
  sync_.prepare(cached.signature, payload);
  sync_.signal();
  if (!poll_others(o, deadline) || sync_.is_over() ||
      (cached.plan.uses_inline_chunks() && !data_.fetch_inline_chunks(o)))
    return false;
  data_.receive(o);
  data_.prefetch_next(o, cached.plan);
  return true;
}

// Two ranks that spin: an all-reduce or an exchange in the payloads of the arrivals, or a broadcast
// in payloads, inline chunks or a small chunk. Does everything that is possible before the peer's
// arrival, since the remaining time is mostly one cache line transfer. Inline chunks and arrivals
// have places of their own, so the slot ring places nothing for them.
bool ShmCommunicator::run_two_rank(const CachedPlan& cached) {
  if (cached.plan.exits_eagerly) return send_two_rank(cached), true;
  const Operation& o = cached.operation;
  const bool reduces = cached.close != nullptr, both_contribute = reduces || exchanges(o);
  const std::size_t other = rank_ == 0 ? 1 : 0;
  const InlineChunk* chunks = data_.buffers().inline_chunks(other, sync_.epoch());
  const std::byte* source = nullptr;
  if (cached.plan.uses_bounce_buffer()) {
    data_.buffers().place(sync_.epoch(), cached.plan.placed, cached.plan.compact);
    source = data_.buffers().chunk(other, sync_.epoch());
  }
  const reduce::StandardArithmetic arithmetic;
  sync_.prepare(cached.signature, cached.plan.in_arrival() ? o.in : not_in_arena());
  if (both_contribute) sync_.signal();
  const auto poll = [&] {
    if (!cached.plan.uses_inline_chunks()) return sync_.poll_rank(other);
    return read_inline_chunks(chunks, sync_.tag(), o.out) ? PollResult::kComplete
                                                          : PollResult::kIncomplete;
  };
  PollResult seen = poll();
  sync_.set_arrived_last(seen == PollResult::kComplete);
  for (std::size_t i = 1; i < engine_->spin_polls() && seen == PollResult::kIncomplete; ++i)
    seen = poll();
  if (seen != PollResult::kComplete || sync_.is_over()) {
    data_.begin(cached.plan, cached.signature, o);
    if (!both_contribute) sync_.signal();
    reduce::fence();
    static_cast<void>(sync_.poll_and_ring());
    return false;
  }
  if (reduces) {
    const auto payload = [&](std::size_t rank) { return sync_.payload_of(rank); };
    cached.close(o.out.data(), payload(0), payload(1), cached.count, cached.divisor, false);
  } else if (both_contribute) {
    exchange_small(o, static_cast<std::size_t>(rank_), sync_.payload_of(other));
  } else {
    if (cached.plan.in_arrival())
      reduce::copy_small(o.out.data(), sync_.payload_of(other), o.out.size());
    if (source != nullptr) data_.copy(o.out.data(), source, o.out.size(), reduce::Stores::kPlain);
    sync_.signal();
  }
  sync_.prefetch_next();
  sync_.ring();
  return true;
}

// The root of a broadcast between two ranks.
void ShmCommunicator::send_two_rank(const CachedPlan& cached) {
  const Operation& o = cached.operation;
  Input payload = o.out;
  const auto self = static_cast<std::size_t>(rank_);
  if (cached.plan.uses_inline_chunks()) {
    write_inline_chunks(data_.buffers().inline_chunks(self, sync_.epoch()),
                        sync_.next_tag(cached.signature), o.out);
    payload = not_in_arena();
  } else if (cached.plan.uses_bounce_buffer()) {
    data_.buffers().place(sync_.epoch(), cached.plan.placed, cached.plan.compact);
    reduce::store_block(data_.buffers().chunk(self, sync_.epoch()), o.out.data(), o.out.size(),
                        reduce::Stores::kPlain);
    payload = not_in_arena();
  }
  sync_.signal_and_leave(cached.signature, payload);
  exited_eagerly_ = true;
  if (cached.plan.uses_bounce_buffer()) return data_.prefetch_next(o, cached.plan);
  sync_.prefetch_next();  // enough for smaller data
  const InlineChunk* next = data_.buffers().inline_chunks(self, sync_.epoch());
  for (std::size_t i = 0;
       cached.plan.uses_inline_chunks() && i < inline_chunks_for(cached.plan.block); ++i)
    reduce::prefetch_for_write(next + i);
}

// Polls for the peers within the spin limit; true once all have arrived. Fences before it polls: a
// load from a line that a peer is writing delays the peer's store, and the fence takes long enough
// for those stores to be done.
bool ShmCommunicator::poll_others(const Operation& o, base::TimePoint deadline) {
  reduce::fence();
  sync_.back_off();
  const Plan& plan = data_.plan();
  const auto fetch = [&] { return plan.uses_inline_chunks() && data_.fetch_inline_chunks(o); };
  bool fetched = fetch();
  if (engine_->spins() && plan.uses_bounce_buffer() && !from_root(o.kind)) data_.prefetch_others(o);
  PollResult seen = sync_.poll_and_ring();
  for (std::size_t poll = 0; poll < engine_->spin_polls() && seen == PollResult::kIncomplete;
       ++poll) {
    if (!engine_->yield_core(deadline)) break;
    fetched = fetch();
    const bool all_received = fetched && !from_root(o.kind);
    const auto root = fetched ? static_cast<std::size_t>(o.root) : SyncPoints::kNoRank;
    seen = all_received ? PollResult::kComplete : sync_.poll(false, root);
  }
  return seen == PollResult::kComplete;
}

}  // namespace regroup::collective::shm
