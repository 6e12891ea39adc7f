// Operations and their rendezvous.
//
// Why nobody overwrites a chunk that a slow peer still reads: count time in rendezvous; "at time k" is
// between rendezvous k and k+1. The chunk of time k is written by its owner at k, one slice of it again at
// k+1 by the same owner, and read at k+1 and k+2. Three in a row lie apart (Turns), so its place is next
// written at k+3 or later: behind rendezvous k+3, at which everybody has arrived who was through with k+2,
// whatever the operations are. None is needed at the end of one. Who leaves behind its own arrival
// (leaves_early()) sees all others there before it writes anything for the operation that follows. Payloads
// are written before rendezvous k and read behind it, and there are two of them. Time starts anew with each
// communicator, hence it settles: its members meet once before the first chunk or payload is written. Between
// generations the gate does the same. Groups share the stage, each with a time of its own: then each
// operation ends with a rendezvous (Family::has_groups).
//
// Why nobody changes memory that others read where it is, in the arena or by a copy of the kernel
// (one_copy.cc): its owner is in the operation until a rendezvous behind those reads, and leaves none of
// these early. Who leaves because it failed takes its sign away first (Family::fail, foreign.h): what is read
// then, or from a process that is gone and another in its place, is known to be wrong by who read it. Then,
// or if the kernel refuses, chunks go through the stages as if nothing had been read, from the rendezvous on
// at which all have learnt it.
#include "collective/shm/communicator.h"

#include <fmt/format.h>

#include <utility>

#include "collective/shm/standard_arithmetic.h"

namespace regroup::collective {

using core::Result;
using core::Status;
using Sight = Arrivals::Sight;

namespace {

bool same(const Operation& a, const Operation& b) {
  return a.kind == b.kind && a.dtype == b.dtype && a.op == b.op && a.root == b.root &&
         a.in.data() == b.in.data() && a.in.size() == b.in.size() && a.out.data() == b.out.data() &&
         a.out.size() == b.out.size();
}

bool exchanges(const Operation& o) { return o.kind == Kind::kAllgather || o.kind == Kind::kAlltoall; }

// What rank `self` of two has then, the other's contribution being at `theirs`.
void exchange_few(const Operation& o, std::size_t self, const std::byte* theirs) {
  const std::size_t block = o.out.size() / 2, other = 1 - self;
  const std::size_t part = is_split(o.kind) ? block : 0;
  const std::byte* own = o.in.data() + self * part;
  std::byte* to = o.out.data() + self * block;
  if (to != own) copy_few(to, own, block);
  copy_few(o.out.data() + other * block, theirs + self * part, block);
}

}  // namespace

ShmCommunicator::ShmCommunicator(std::shared_ptr<Family> family, Seats seats, TreeFold ranks_fold)
    : family_(std::move(family)),
      slots_(std::move(seats.slots)),
      rank_(seats.rank),
      channel_(seats.peers[static_cast<std::size_t>(seats.rank)].channel),
      ranks_fold_(std::move(ranks_fold)),
      turns_(core::stage_bytes(family_->arena().spec().slots)),
      paces_(family_->staging()),
      arrivals_(family_->generation(), seats.instance, std::move(seats.peers), seats.rank),
      settled_(seats.settled),
      inputs_(slots_.size()),
      sources_(slots_.size()) {
  for (const core::SlotIndex slot : slots_) stages_.push_back(&stage_of(family_->arena(), slot));
}

ShmCommunicator::~ShmCommunicator() {
  family_->forget(*this);
  release_channel(*channel_);
}

Result<Request> ShmCommunicator::start(const Operation& operation, core::TimePoint deadline) {
  return start_part(call_of(operation, size()), operation, deadline);
}

Result<Request> ShmCommunicator::start_part(const Call& call, const Operation& operation,
                                            core::TimePoint deadline) {
  REGROUP_RETURN_IF_ERROR(operation.check(rank_, size()));
  const bool message = operation.kind == Kind::kSend || operation.kind == Kind::kReceive;
  auto ticket = message ? family_->start_message(*this, operation,
                                                 slots_[static_cast<std::size_t>(operation.root)], deadline)
                        : family_->start(*this, operation, call, deadline);
  if (!ticket.ok()) return ticket.status();
  return Request(this, *ticket);
}

Status ShmCommunicator::run(const Operation& operation, core::TimePoint deadline) {
  const bool message = operation.kind == Kind::kSend || operation.kind == Kind::kReceive;
  if (message || !family_->is_idle()) return Communicator::run(operation, deadline);
  const Quick* quick = recall(operation);
  if (quick == nullptr) {
    REGROUP_RETURN_IF_ERROR(operation.check(rank_, size()));
    quick = remember(operation);
  }
  if (!family_->goes_on()) return family_->check();
  if (quick == nullptr || family_->has_groups || !has_caught_up(deadline)) {
    return family_->run(family_->make_pending(*this, operation, call_of(operation, size()), deadline));
  }
  if (run_quick(*quick, deadline)) return {};
  Pending pending = family_->make_pending(*this, operation, quick->call, deadline);
  pending.state = Pending::State::kMeeting;
  pending.phase = 1;
  pending.phases = 2;
  return family_->run(pending, true);
}

// Whether all were there at the rendezvous behind which this member did not wait; if not yet, they might come
// while it looks for them.
bool ShmCommunicator::has_caught_up(core::TimePoint deadline) {
  for (std::size_t look = 0; left_early_ && look < family_->quick_looks(); ++look) {
    if (look > 0 && !family_->let_run(deadline)) break;
    const Sight seen = arrivals_.look(true);
    left_early_ = seen != Sight::kAll;
    if (seen == Sight::kStranger) break;
  }
  return !left_early_;
}

// What is known of `o`, or null.
const Quick* ShmCommunicator::recall(const Operation& o) {
  for (std::size_t i = 0; i < quick_.size(); ++i) {
    const Quick& quick = quick_[(next_quick_ + i) % quick_.size()];
    if (!quick.known || !same(o, quick.operation)) continue;
    next_quick_ = (next_quick_ + i + 1) % quick_.size();
    return &quick;
  }
  return nullptr;
}

// Null unless it needs nothing but one rendezvous: what each contributes travels in it or is copied, and all
// have met before.
const Quick* ShmCommunicator::remember(const Operation& o) {
  if (!settled_ || !family_->knows_cores() || !family_->gate_is_open()) return nullptr;
  if (o.kind == Kind::kSumPartials || size() == 1) return nullptr;
  const Plan plan = plan_of(o, false, false);
  if (!plan.is_copied || plan.block > plan.piece || plan.by_slices) return nullptr;
  Quick& quick = quick_[next_quick_];
  next_quick_ = (next_quick_ + 1) % quick_.size();
  quick = {o, call_of(o, size()), plan, true};
  if (size() == 2 && plan.block > 0 && (plan.is_inline || plan.by_lines)) {
    if (o.kind == Kind::kAllreduce && plan.is_inline) quick.close = ranks_fold_.close_of(o.dtype, o.op);
    quick.divisor = ranks_fold_.divisor_of(o.op);
    quick.count = plan.block / size_of(o.dtype);
    quick.is_pair = quick.close != nullptr || o.kind == Kind::kBroadcast || (plan.is_inline && exchanges(o));
  }
  return &quick;
}

// Arrives with it, and finishes it if the others are quick too.
bool ShmCommunicator::run_quick(const Quick& quick, core::TimePoint deadline) {
  const Operation& o = quick.operation;
  if (quick.is_pair && family_->spins()) return run_pair(quick);
  plan_ = quick.plan;
  call_ = quick.call;
  prepare_inputs(o);
  if (!plan_.is_inline && plan_.block > 0) turns_.place(arrivals_.met(), plan_.placed, plan_.tight);
  if (plan_.contributes && !plan_.is_inline) stage_chunk(o, 0);
  if (plan_.is_giver) {
    arrivals_.announce_and_go(call_, announce(o));
    left_early_ = true;
    deliver_own(o);
    make_ready(o);
    return true;
  }
  arrivals_.prepare(call_, announce(o));
  arrivals_.announce();
  if (!find_others(o, deadline) || arrivals_.is_over() || (plan_.by_lines && !fetch_lines(o))) return false;
  if (plan_.block > 0) {
    set_sources(o, 0);
    take_chunk(o, 0, arrivals_.met() - 1);
    if (plan_.stores == Stores::kStream) complete_stores();
  }
  make_ready(o);
  return true;
}

// An all-reduce or an exchange in the arrivals of two ranks that spin, or a broadcast there or in lines: with
// nothing between the other's arrival and the result that could be done before, as that is most of what it
// takes beside the way of a cache line. What it carries is not placed (Turns): lines and arrivals have turns
// of their own.
bool ShmCommunicator::run_pair(const Quick& quick) {
  if (quick.plan.is_giver) return give(quick), true;
  const Operation& o = quick.operation;
  const bool reduces = quick.close != nullptr, both_give = reduces || exchanges(o);
  const std::size_t other = rank_ == 0 ? 1 : 0;
  const DataLine* lines = stages_[other]->lines_of_time(arrivals_.met());
  const StandardArithmetic arithmetic;
  arrivals_.prepare(quick.call, quick.plan.by_lines ? nowhere() : o.in);
  if (both_give) arrivals_.announce();
  const auto look = [&] {
    if (!quick.plan.by_lines) return arrivals_.look_at(other);
    return read_lines(lines, arrivals_.mark(), o.out) ? Sight::kAll : Sight::kMissing;
  };
  Sight seen = look();
  arrivals_.set_leads(seen == Sight::kAll);
  for (std::size_t i = 1; i < family_->quick_looks() && seen == Sight::kMissing; ++i) seen = look();
  if (seen != Sight::kAll || arrivals_.is_over()) {
    plan_ = quick.plan;
    call_ = quick.call;
    prepare_inputs(o);
    if (!both_give) arrivals_.announce();
    fence();
    static_cast<void>(arrivals_.look_first());
    return false;
  }
  if (reduces) {
    const auto payload = [&](std::size_t rank) { return arrivals_.payload_of(rank); };
    quick.close(o.out.data(), payload(0), payload(1), quick.count, quick.divisor, false);
  } else if (both_give) {
    exchange_few(o, static_cast<std::size_t>(rank_), arrivals_.payload_of(other));
  } else {
    if (quick.plan.is_inline) copy_few(o.out.data(), arrivals_.payload_of(other), o.out.size());
    arrivals_.announce();
  }
  arrivals_.make_ready();
  arrivals_.ring();
  return true;
}

// The other side of a broadcast.
void ShmCommunicator::give(const Quick& quick) {
  const Operation& o = quick.operation;
  Input payload = o.out;
  Stage& stage = *stages_[static_cast<std::size_t>(rank_)];
  if (quick.plan.by_lines) {
    write_lines(stage.lines_of_time(arrivals_.met()), arrivals_.next_mark(quick.call), o.out);
    payload = nowhere();
  }
  arrivals_.announce_and_go(quick.call, payload);
  left_early_ = true;
  arrivals_.make_ready();
  const DataLine* next = stage.lines_of_time(arrivals_.met());
  for (std::size_t i = 0; quick.plan.by_lines && i < lines_of(quick.plan.block); ++i) make_own(next + i);
}

// Looks for what the others bring, a while. Behind a fence: who looks at lines that are being written takes
// each of them away from its writer, and by then they are.
bool ShmCommunicator::find_others(const Operation& o, core::TimePoint deadline) {
  fence();
  arrivals_.give_way();
  const auto fetch = [&] { return plan_.by_lines && fetch_lines(o); };
  bool fetched = fetch();
  if (family_->spins() && !plan_.is_inline && !plan_.by_lines && !from_root(o.kind)) fetch_ahead(o);
  Sight seen = arrivals_.look_first();
  for (std::size_t look = 0; look < family_->quick_looks() && seen == Sight::kMissing; ++look) {
    if (!family_->let_run(deadline)) break;
    fetched = fetch();
    const bool all_gave = fetched && !from_root(o.kind);
    const auto giver = fetched ? static_cast<std::size_t>(o.root) : Arrivals::kNobody;
    seen = all_gave ? Sight::kAll : arrivals_.look(false, giver);
  }
  return seen == Sight::kAll;
}

// Has the lines at hand that the next operation, if it is the same again, will write first; nobody reads them
// any more.
void ShmCommunicator::make_ready(const Operation& o) const {
  arrivals_.make_ready();
  const bool in_one_place = plan_.by_lines || (plan_.is_giver && !is_split(o.kind));
  if (plan_.is_inline || !in_one_place || !plan_.contributes) return;
  if (paces_.settled(o.kind, plan_.placed) == Stores::kStream) return;  // these need no lines
  constexpr std::size_t kMost = 2048;
  const auto self = static_cast<std::size_t>(rank_);
  const std::byte* next =
      stages_[self]->room_of(slots_[self]) + turns_.next(arrivals_.met(), plan_.placed, plan_.tight);
  std::size_t bytes = std::min(kMost, contribution_of(o).size());
  if (plan_.by_lines) {
    next = reinterpret_cast<const std::byte*>(stages_[self]->lines_of_time(arrivals_.met()));
    bytes = lines_of(plan_.block) * (is_split(o.kind) ? slots_.size() : 1) * sizeof(DataLine);
  }
  for (std::size_t at = 0; at < bytes; at += 64) make_own(next + at);
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
  const auto meet = [&](std::span<const std::byte> payload) {
    REGROUP_RETURN_IF_ERROR(family_->check());
    return alone ? Status() : arrivals_.arrive(pending.call, payload);
  };
  switch (pending.state) {
    case State::kNew:
      if (left_early_) {
        pending.state = State::kCatchingUp;
        return true;
      }
      if (is_shared(pending.operation) && !family_->gate_is_open()) return false;
      make_plan(pending);
      pending.state =
          settled_ || alone || !is_shared(pending.operation) || pending.operation.kind == Kind::kSumPartials
              ? State::kWorking
              : State::kSettling;
      if (pending.state == State::kSettling) REGROUP_RETURN_IF_ERROR(meet({}));
      return true;
    case State::kWorking: {
      if (pending.phase == 1 && plan_.by_lines && !fetch_lines(pending.operation)) {
        return Status(core::Code::kDataLoss,
                      fmt::format("{}: all have arrived, but what rank {} brought is not there",
                                  name_of(pending.operation.kind), fetched_of_));
      }
      if (plan_.one_copy && pending.phase == 1) REGROUP_RETURN_IF_ERROR(read_all(pending));
      const auto payload = work(pending);
      if (plan_.stores == Stores::kStream) complete_stores();  // what follows may not publish() anything
      pending.phase += 1;
      const bool last = pending.phase == pending.phases;
      if (last && (!pending.closes || alone)) return true;
      pending.state = last ? State::kClosing : State::kMeeting;
      REGROUP_RETURN_IF_ERROR(meet(payload));
      if (leaves_early(pending)) {
        left_early_ = true;
        deliver_own(pending.operation);
        pending.phase = pending.phases;
        pending.state = State::kWorking;
      }
      return true;
    }
    case State::kCatchingUp:
    case State::kSettling:
    case State::kMeeting:
    case State::kClosing: {
      auto here = alone ? Result<bool>(true) : arrivals_.all_here(thorough);
      if (arrivals_.is_over()) {
        return Status(core::Code::kRevoked, fmt::format("generation {} is over", family_->generation()));
      }
      if (!here.ok() || !*here) return here;
      family_->met(slots_);
      settled_ = settled_ || pending.state == State::kSettling;
      if (pending.state == State::kMeeting && pending.phase == 1) hear(pending);
      if (plan_.one_copy && pending.state == State::kMeeting && pending.phase == 2) hear_votes(pending);
      left_early_ = false;
      pending.state = pending.state == State::kCatchingUp ? State::kNew : State::kWorking;
      return true;
    }
  }
  return false;
}

// Its contribution lies where the others find it without this member, and it wants nothing of them: its last
// rendezvous can wait for the next operation. Where some contributions lie in the arena there is one more,
// of which it has heard.
bool ShmCommunicator::leaves_early(const Pending& pending) const {
  const bool last = pending.state == Pending::State::kMeeting && pending.phase + 1 == pending.phases;
  const bool heard = plan_.is_copied || from_root(pending.operation.kind) || pending.phase > 1;
  return plan_.is_giver && last && heard && offsets_.in == kNowhere && !plan_.one_copy && !pending.closes;
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
  auto ticket = family_->start(*this, operation, call_of(operation, size()), deadline);
  return ticket.ok() ? family_->wait(*ticket) : ticket.status();
}

}  // namespace regroup::collective
