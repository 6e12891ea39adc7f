// What a joiner does until it is a member, and its copy inside the regroup. Without a ring it reads
// the results of the members; with one (-ring N) it is the learner of section 4 rule 6: it copies
// the snapshot of a step, its agent stores each result committed since, it replays them and proves
// what it has.
#include <algorithm>

#include "tests/model/protocol_moves.h"

namespace regroup::model::protocol {
namespace {

struct Learner {
  const Moves& moves;
  const State& s = moves.s;
  const Member& m = s.m[kJoiner];
  const int host = moves.o.host_of(kJoiner);

  [[nodiscard]] bool has(Rule rule) const { return moves.has(rule); }
  template <class Change>
  State with(Change change) const {
    State t = s;
    change(t.m[kJoiner]);
    return t;
  }
  [[nodiscard]] bool is_donor(int d) const {
    const Member& x = s.m[d];
    return x.pc != kDead && moves.reachable_member(d) && x.pc != kApply && x.pc != kCatchingUp;
  }
  // Its next result is committed, as the words on host `h` say.
  [[nodiscard]] bool committed_on(int h, int step) const;
  [[nodiscard]] State again(bool counts) const;

  void take_slot() const;
  void begin() const;
  void copy() const;
  void replay_from_members() const;
  void store_result() const;
  void replay_from_ring() const;
  void prove() const;
  void copy_in_world() const;
};

// A World that may still be in force counts on the word of dead member `d`, or its plan on its
// seals.
bool counts_on(const Moves& moves, int d) {
  const State& s = moves.s;
  int newest = 0;
  for (int i = 0; i < kMembers; ++i)
    newest = std::max(newest, moves.reachable_member(i) ? moves.committed(i) : 0);
  for (const int w : {s.world, s.journaled, s.next}) {
    if (moves.contains(w, d)) return true;
    if (newest > s.w[w].resume) continue;
    for (int k = 0; k < moves.o.intervals(); ++k) {
      if (s.w[w].source[k] == d) return true;
    }
  }
  return false;
}

bool Learner::committed_on(int h, int step) const {
  for (int i = 0; i < kMembers; ++i) {
    if (moves.o.host_of(i) == h && moves.reachable(h) && moves.committed(i) >= step) return true;
  }
  return false;
}

State Learner::again(bool counts) const {
  return with([&](Member& n) {
    n.pc = kLearnerNone;
    n.applied = n.ring = n.donor = n.bad = 0;
    if (counts && n.restarts < 2) ++n.restarts;
  });
}

void Learner::take_slot() const {
  for (int d = 0; d < kJoiner; ++d) {
    const Member& x = s.m[d];
    if (x.pc != kDead || x.phase == kNone || moves.o.host_of(d) != host) continue;
    if ((has(kReapSlot) && x.zombie != 0) || (has(kSlotUse) && counts_on(moves, d))) continue;
    State t = with([&](Member& n) { n.slot = static_cast<Byte>(d + 1); });
    Member& old = t.m[d];
    old.phase = old.generation = old.step = old.marked = old.sealed_step = old.data = old.sealed =
        0;
    moves.emit(t, "agent gives the joiner the slot and the buffers of m{}", d);
  }
}

void Learner::begin() const {
  if (moves.o.reuse_slots && m.slot == 0) take_slot();
  if (moves.o.ring > 0 && m.restarts == 2) {
    return moves.emit(with([](Member& n) { n.pc = kLearnerReady; }),
                      "learner was too slow twice: training is to pause for its copy");
  }
  for (int d = 0; d < kJoiner; ++d) {
    if (!is_donor(d)) continue;
    const Byte k = s.m[d].applied;
    const auto change = [&](Member& n) {
      n.donor = static_cast<Byte>(d), n.applied = k, n.pc = kLearnerCopy;
      if (moves.o.ring > 0) n.ring = k;
    };
    moves.emit(with(change), "learner begins to copy applied state {} from m{}", k, d);
  }
}

// With a ring the donor's agent keeps state k in its snapshot buffer; without, the donor must stay
// there.
void Learner::copy() const {
  const bool stays = is_donor(m.donor) && s.m[m.donor].applied == m.applied;
  const bool whole = moves.o.ring > 0 ? moves.reachable_member(m.donor) : stays;
  if (whole) {
    return moves.emit(with([](Member& n) { n.pc = kLearner, n.donor = 0; }),
                      "learner's copy of state {} is complete", m.applied);
  }
  moves.emit(again(false), "learner's copy is torn or the donor gone: again");
}

void Learner::replay_from_members() const {
  if (s.joined != 0) return;
  const int k = m.applied + 1;
  bool known = false;
  for (int d = 0; d < kJoiner; ++d)
    known |= moves.alive(moves.o.host_of(d)) && moves.committed(d) >= k;
  if (!known || k > moves.o.steps) return;
  for (int h = 0; h < kHosts; ++h) {
    if (!moves.reachable(h) || !moves.whole_result(s, h, k)) continue;
    return moves.emit(with([&](Member& n) { n.applied = static_cast<Byte>(k); }),
                      "learner replays committed result {}", k);
  }
}

void Learner::store_result() const {
  const int k = m.ring + 1;
  if (k > moves.o.steps) return;
  bool committed = false;
  int from = -1;
  for (int h = 0; h < kHosts; ++h) {
    const bool here = committed_on(h, k);
    committed |= here;
    if ((here || !has(kRingCommit)) && moves.reachable(h) && moves.whole_result(s, h, k)) from = h;
  }
  if (has(kRingKept) && m.ring - m.applied >= moves.o.ring) {
    if (committed) moves.emit(again(true), "the learner's ring is full at result {}: again", k);
  } else if (from >= 0) {
    moves.emit(with([&](Member& n) { n.ring = static_cast<Byte>(k); }),
               "learner's agent stores result {} of host {}", k, from);
  } else if (committed) {
    moves.emit(again(true), "learner's agent came too late for result {}: again", k);
  }
}

void Learner::replay_from_ring() const {
  if (m.applied >= m.ring) return;
  if (m.ring - m.applied > moves.o.ring) {
    moves.violate("I10: the learner replays from a place of the ring where a later result stands");
  }
  moves.emit(with([](Member& n) { ++n.applied; }), "learner replays result {} of its ring",
             m.applied + 1);
}

// With the digest of any member that has been there.
void Learner::prove() const {
  const auto knows = [&](int d) { return is_donor(d) && s.m[d].applied >= m.applied; };
  const bool known = knows(0) || knows(1) || knows(2) || knows(3);
  if (!known && has(kProve)) return;
  if (m.bad != 0 && has(kProve))
    return moves.emit(again(false), "learner's digest of state {} differs: again", m.applied);
  moves.emit(with([](Member& n) { n.pc = kLearnerReady; }), "learner is ready with state {}",
             m.applied);
}

void Learner::copy_in_world() const {
  if (m.revoked_up_to >= moves.generation(m.world) || (!has(kJoinFails) && m.revoked_up_to != 0))
    moves.emit(with([](Member& n) { n.pc = kIdle; }), "joiner gives up the copy, revoked");
  const Byte resume = s.w[m.world].resume;
  for (int d = 0; d < kJoiner; ++d) {
    const Member& x = s.m[d];
    const bool busy = x.pc == kDead || x.pc == kCatchingUp || x.pc == kApply;
    if (!moves.contains(m.world, d) || busy || x.applied != resume) continue;
    return moves.emit(with([&](Member& n) { n.applied = resume, n.bad = 0, n.pc = kOpening; }),
                      "joiner copies state {} from m{}", resume, d);
  }
}

}  // namespace

void learner_moves(const Moves& moves) {
  const Learner learner{moves};
  const Byte pc = learner.m.pc;
  if (pc == kJoinerCopy) return learner.copy_in_world();
  if (pc == kLearnerNone) return learner.begin();
  if (pc == kLearnerStopped) return;
  if (pc == kLearnerCopy) learner.copy();
  if (moves.o.ring == 0) return pc == kLearner ? learner.replay_from_members() : void();
  if (learner.m.restarts < 2) learner.store_result();
  if (pc == kLearnerCopy) return;
  if (learner.m.restarts < 2) learner.replay_from_ring();
  if (pc == kLearner) learner.prove();
}

}  // namespace regroup::model::protocol
