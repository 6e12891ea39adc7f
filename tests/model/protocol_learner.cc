// What a joiner does until it is a member, and its copy inside the regroup.
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
  void take_line() const;
  void begin() const;
  void copy() const;
  void replay_from_members() const;
  void copy_in_world() const;
};

// A World that may still be in force counts on the word of dead member `d`, or its plan on its seals.
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

void Learner::take_line() const {
  for (int d = 0; d < kJoiner; ++d) {
    const Member& x = s.m[d];
    if (x.pc != kDead || x.phase == kNone || moves.o.host_of(d) != host) continue;
    if ((has(kReapLine) && x.zombie != 0) || (has(kLineUse) && counts_on(moves, d))) continue;
    State t = with([&](Member& n) { n.line = static_cast<Byte>(d + 1); });
    Member& old = t.m[d];
    old.phase = old.generation = old.step = old.marked = old.sealed_step = old.data = old.sealed = 0;
    moves.emit(t, "agent gives the joiner the line and the buffers of m{}", d);
  }
}

void Learner::begin() const {
  if (moves.o.reuse_lines && m.line == 0) take_line();
  for (int d = 0; d < kJoiner; ++d) {
    if (!is_donor(d)) continue;
    const Byte k = s.m[d].applied;
    moves.emit(with([&](Member& n) { n.donor = static_cast<Byte>(d), n.applied = k, n.pc = kLearnerCopy; }),
               "learner begins to copy applied state {} from m{}", k, d);
  }
}

void Learner::copy() const {
  if (is_donor(m.donor) && s.m[m.donor].applied == m.applied) {
    return moves.emit(with([](Member& n) { n.pc = kLearner, n.donor = 0; }),
                      "learner's copy of state {} is complete", m.applied);
  }
  moves.emit(with([](Member& n) { n.pc = kLearnerNone, n.applied = n.donor = 0; }),
             "learner's copy is torn or the donor gone: again");
}

void Learner::replay_from_members() const {
  if (s.joined != 0) return;
  const int k = m.applied + 1;
  bool known = false;
  for (int d = 0; d < kJoiner; ++d) known |= moves.alive(moves.o.host_of(d)) && moves.committed(d) >= k;
  if (!known || k > moves.o.steps) return;
  for (int h = 0; h < kHosts; ++h) {
    if (!moves.reachable(h) || !moves.whole_result(s, h, k)) continue;
    return moves.emit(with([&](Member& n) { n.applied = static_cast<Byte>(k); }),
                      "learner replays committed result {}", k);
  }
}

void Learner::copy_in_world() const {
  if (m.revoked_up_to >= moves.generation(m.world) || (!has(kJoinFails) && m.revoked_up_to != 0))
    moves.emit(with([](Member& n) { n.pc = kIdle; }), "joiner gives up the copy, revoked");
  const Byte resume = s.w[m.world].resume;
  for (int d = 0; d < kJoiner; ++d) {
    const Member& x = s.m[d];
    const bool busy = x.pc == kDead || x.pc == kCatchingUp || x.pc == kApply;
    if (!moves.contains(m.world, d) || busy || x.applied != resume) continue;
    return moves.emit(with([&](Member& n) { n.applied = resume, n.pc = kOpening; }),
                      "joiner copies state {} from m{}", resume, d);
  }
}

}  // namespace

void learner_moves(const Moves& moves) {
  const Learner learner{moves};
  switch (learner.m.pc) {
    case kJoinerCopy:
      return learner.copy_in_world();
    case kLearnerNone:
      return learner.begin();
    case kLearnerCopy:
      return learner.copy();
    default:
      return learner.replay_from_members();
  }
}

}  // namespace regroup::model::protocol
