// Operations that block, with nothing before them: found again and not planned anew, and without a queue as
// long as the others are near. Those that need nothing but one rendezvous are arrived at and finished at
// once, and of two ranks with nothing between the other's arrival and the result.
#include <algorithm>

#include "collective/shm/communicator.h"
#include "collective/shm/standard_arithmetic.h"

namespace regroup::collective {

using Sight = Arrivals::Sight;

namespace {

constexpr std::size_t kMostOfPair = 4 << 10;  // a broadcast of 8 KiB gains nothing so, one of 16 is slower

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

core::Status ShmCommunicator::run(const Operation& operation, core::TimePoint deadline) {
  const bool message = operation.kind == Kind::kSend || operation.kind == Kind::kReceive;
  if (message || !family_->is_idle()) return Communicator::run(operation, deadline);
  const Known* known = recall(operation);
  if (known == nullptr) {
    REGROUP_RETURN_IF_ERROR(operation.check(rank_, size()));
    known = remember(operation);
  }
  if (!family_->goes_on()) return family_->check();
  if (known == nullptr || family_->has_groups || !has_caught_up(deadline)) {
    return family_->run(family_->make_pending(*this, operation, call_of(operation, size()), deadline));
  }
  if (known->is_quick && run_quick(*known, deadline)) return {};
  Pending pending = family_->make_pending(*this, operation, known->call, deadline);
  if (known->is_quick) {
    pending.state = Pending::State::kMeeting;
    pending.phase = 1;
    pending.phases = 2;
    return family_->run(pending, true);
  }
  pending.state = Pending::State::kWorking;
  begin(pending, known->plan, false);
  return run_near(pending);
}

// From rendezvous to rendezvous while the others are near; else with what is left to the queue, which also
// tells that the deadline has passed.
core::Status ShmCommunicator::run_near(Pending& pending) {
  constexpr std::uint64_t kBetweenClocks = 16;
  for (;;) {
    const core::Result<bool> done = advance(pending, false);
    if (!done.ok()) {
      family_->fail(done.status());
      return family_->check();
    }
    if (*done) return {};
    Sight seen = Sight::kMissing;
    for (std::size_t look = 0; look < family_->quick_looks() && seen == Sight::kMissing; ++look) {
      if (!family_->let_run(pending.deadline)) break;
      seen = arrivals_.look(false);
    }
    const bool is_late = pending.phase % kBetweenClocks == 0 && core::SystemClock().now() >= pending.deadline;
    if (seen == Sight::kMissing || is_late) return family_->run(pending, seen == Sight::kMissing);
  }
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

// What is known of `o`, or null. Operations of a loop come again in their order: looks first at what followed
// the latest the last time, and where that was the same one twice, the last time that it was.
const Known* ShmCommunicator::recall(const Operation& o) {
  const auto is_it = [&](const Known& known) { return known.is_set && same(o, known.operation); };
  std::size_t at = known_[latest_].followers[repeats_];
  if (!is_it(known_[at])) {
    at = static_cast<std::size_t>(std::ranges::find_if(known_, is_it) - known_.begin());
    if (at == known_.size()) return nullptr;
  }
  return &go_to(at);
}

// Entry `at` of what is known is the latest, and followed the one that was.
Known& ShmCommunicator::go_to(std::size_t at) {
  known_[latest_].followers[repeats_] = static_cast<std::uint8_t>(at);
  repeats_ = at == latest_ ? 1 : 0;
  latest_ = at;
  return known_[at];
}

// Null unless all have met before.
const Known* ShmCommunicator::remember(const Operation& o) {
  if (!settled_ || !family_->knows_cores() || !family_->gate_is_open()) return nullptr;
  if (o.kind == Kind::kSumPartials || size() == 1) return nullptr;
  const Plan plan = plan_of(o, false, false);
  Known& known = go_to(remembered_++ % known_.size());  // in the place of the oldest
  known = {o, call_of(o, size()), plan, true};
  known.is_quick = plan.is_copied && plan.block <= plan.piece && !plan.by_slices;
  const bool is_plain = paces_.settled(o.kind, plan.placed) == Stores::kPlain;
  const bool is_small = !plan.is_staged() || (is_plain && plan.placed <= kMostOfPair);
  if (known.is_quick && size() == 2 && plan.block > 0 && is_small) {
    if (o.kind == Kind::kAllreduce && plan.is_inline) known.close = ranks_fold_.close_of(o.dtype, o.op);
    known.divisor = ranks_fold_.divisor_of(o.op);
    known.count = plan.block / size_of(o.dtype);
    known.is_pair = known.close != nullptr || o.kind == Kind::kBroadcast || (plan.is_inline && exchanges(o));
  }
  return &known;
}

// Arrives with it, and finishes it if the others are near.
bool ShmCommunicator::run_quick(const Known& known, core::TimePoint deadline) {
  const Operation& o = known.operation;
  if (known.is_pair && family_->spins()) return run_pair(known);
  begin(known.plan, known.call, o);
  if (!plan_.is_inline && plan_.block > 0) turns_.place(arrivals_.met(), plan_.placed, plan_.tight);
  if (plan_.contributes && !plan_.is_inline) stage_chunk(o, 0);
  if (plan_.is_giver) {
    arrivals_.announce_and_go(call_, announce(o));
    left_early_ = true;
    deliver_own(o);
    make_ready(o, plan_);
    return true;
  }
  arrivals_.prepare(call_, announce(o));
  arrivals_.announce();
  if (!find_others(o, deadline) || arrivals_.is_over() || (plan_.by_lines && !fetch_lines(o))) return false;
  if (plan_.block > 0) {
    set_sources(o, 0);
    take_chunk(o, 0, arrivals_.met() - 1);
    if (plan_.streams()) complete_stores();
  }
  make_ready(o, plan_);
  return true;
}

// An all-reduce or an exchange in the arrivals of two ranks that spin, or a broadcast there, in lines or
// in a small chunk: with nothing between the other's arrival and the result that could be done before, as
// that is most of what it takes beside the way of a cache line. Lines and arrivals are not placed (Turns):
// they have turns of their own.
bool ShmCommunicator::run_pair(const Known& known) {
  if (known.plan.is_giver) return give(known), true;
  const Operation& o = known.operation;
  const bool reduces = known.close != nullptr, both_give = reduces || exchanges(o);
  const std::size_t other = rank_ == 0 ? 1 : 0;
  const DataLine* lines = stages_[other]->lines_of_time(arrivals_.met());
  const std::byte* staged = nullptr;
  if (known.plan.is_staged()) {
    turns_.place(arrivals_.met(), known.plan.placed, known.plan.tight);
    staged = chunk(other, arrivals_.met());
  }
  const StandardArithmetic arithmetic;
  arrivals_.prepare(known.call, known.plan.is_inline ? o.in : nowhere());
  if (both_give) arrivals_.announce();
  const auto look = [&] {
    if (!known.plan.by_lines) return arrivals_.look_at(other);
    return read_lines(lines, arrivals_.mark(), o.out) ? Sight::kAll : Sight::kMissing;
  };
  Sight seen = look();
  arrivals_.set_leads(seen == Sight::kAll);
  for (std::size_t i = 1; i < family_->quick_looks() && seen == Sight::kMissing; ++i) seen = look();
  if (seen != Sight::kAll || arrivals_.is_over()) {
    begin(known.plan, known.call, o);
    if (!both_give) arrivals_.announce();
    fence();
    static_cast<void>(arrivals_.look_first());
    return false;
  }
  if (reduces) {
    const auto payload = [&](std::size_t rank) { return arrivals_.payload_of(rank); };
    known.close(o.out.data(), payload(0), payload(1), known.count, known.divisor, false);
  } else if (both_give) {
    exchange_few(o, static_cast<std::size_t>(rank_), arrivals_.payload_of(other));
  } else {
    if (known.plan.is_inline) copy_few(o.out.data(), arrivals_.payload_of(other), o.out.size());
    if (staged != nullptr) copy(o.out.data(), staged, o.out.size(), Stores::kPlain);
    arrivals_.announce();
  }
  arrivals_.make_ready();
  arrivals_.ring();
  return true;
}

// The other side of a broadcast.
void ShmCommunicator::give(const Known& known) {
  const Operation& o = known.operation;
  Input payload = o.out;
  const auto self = static_cast<std::size_t>(rank_);
  if (known.plan.by_lines) {
    write_lines(stages_[self]->lines_of_time(arrivals_.met()), arrivals_.next_mark(known.call), o.out);
    payload = nowhere();
  } else if (known.plan.is_staged()) {
    turns_.place(arrivals_.met(), known.plan.placed, known.plan.tight);
    store_block(chunk(self, arrivals_.met()), o.out.data(), o.out.size(), Stores::kPlain);
    payload = nowhere();
  }
  arrivals_.announce_and_go(known.call, payload);
  left_early_ = true;
  if (known.plan.is_staged()) return make_ready(o, known.plan);
  arrivals_.make_ready();  // what is smaller needs no more, and not its questions
  const DataLine* next = stages_[self]->lines_of_time(arrivals_.met());
  for (std::size_t i = 0; known.plan.by_lines && i < lines_of(known.plan.block); ++i) make_own(next + i);
}

// Looks for what the others bring, a while. Behind a fence: who looks at lines that are being written takes
// each of them away from its writer, and by then they are.
bool ShmCommunicator::find_others(const Operation& o, core::TimePoint deadline) {
  fence();
  arrivals_.give_way();
  const auto fetch = [&] { return plan_.by_lines && fetch_lines(o); };
  bool fetched = fetch();
  if (family_->spins() && plan_.is_staged() && !from_root(o.kind)) fetch_ahead(o);
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
void ShmCommunicator::make_ready(const Operation& o, const Plan& plan) const {
  arrivals_.make_ready();
  const bool in_one_place = plan.by_lines || (plan.is_giver && !is_split(o.kind));
  if (plan.is_inline || !in_one_place || !plan.contributes) return;
  const bool past = !plan.by_lines && paces_.settled(o.kind, plan.placed) == Stores::kStream;
  if (past) return;  // these need no lines
  constexpr std::size_t kMost = 2048;
  const auto self = static_cast<std::size_t>(rank_);
  const std::byte* next =
      stages_[self]->room_of(slots_[self]) + turns_.next(arrivals_.met(), plan.placed, plan.tight);
  std::size_t bytes = std::min(kMost, contribution_of(o).size());
  if (plan.by_lines) {
    next = reinterpret_cast<const std::byte*>(stages_[self]->lines_of_time(arrivals_.met()));
    bytes = lines_of(plan.block) * (is_split(o.kind) ? slots_.size() : 1) * sizeof(DataLine);
  }
  for (std::size_t at = 0; at < bytes; at += 64) make_own(next + at);
}

}  // namespace regroup::collective
