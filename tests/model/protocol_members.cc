// The moves of members: a step from opening to applying, and finish().
#include <algorithm>

#include "tests/model/protocol_moves.h"

namespace regroup::model::protocol {
namespace {

// One member, in the state that is left.
struct Self {
  const Moves& moves;
  const int i;
  const Member& m = moves.s.m[i];
  const int host = moves.o.host_of(i);
  const World& world = moves.s.w[m.world];

  [[nodiscard]] bool has(Rule rule) const { return moves.has(rule); }
  [[nodiscard]] bool revoked() const {
    return has(kJoinFails) ? m.revoked_up_to >= world.generation : m.revoked_up_to != 0;
  }
  // The state with this member changed.
  template <class Change>
  State with(Change change) const {
    State t = moves.s;
    change(t.m[i]);
    return t;
  }
  [[nodiscard]] State at(Pc pc) const {
    return with([&](Member& n) { n.pc = pc; });
  }
  template <class Test>
  [[nodiscard]] bool all_of_world(Test test) const {
    for (int k = 0; k < kMembers; ++k) {
      if (moves.contains(m.world, k) && !test(k)) return false;
    }
    return true;
  }
  [[nodiscard]] Pc begin(int step) const { return step > moves.o.steps ? kFinishVote : kCompute; }

  void enter_world() const;
  void catch_up() const;
  void open_first() const;
  void compute() const;
  void seal() const;
  void reduce() const;
  void write() const;
  void vote() const;
  void commit() const;
  void apply() const;
  void open_next() const;
  void finish() const;
};

void Self::enter_world() const {
  const State& s = moves.s;
  const int w = s.a[host].world;
  const int g = moves.generation(w);
  if (w >= s.worlds || !moves.contains(w, i) || g <= world.generation) return;
  if (has(kJoinFails) && m.revoked_up_to >= g) return;
  const int resume = s.w[w].resume;
  State t = moves.s;
  Member& n = t.m[i];
  n.world = static_cast<Byte>(w);
  const bool finished = resume > moves.o.steps;  // finish() has no result to apply
  const auto accept = [&] {
    if (has(kCatchUp)) n.phase = kCommitted, n.step = static_cast<Byte>(resume), n.marked = 1;
  };
  if (n.applied == resume || (finished && n.applied == moves.o.steps)) {
    if (finished) accept();
    n.pc = kOpening;
    moves.emit(t, "m{} reads World g{} (resume {}), state already there", i, g, resume);
  } else if (i == kJoiner && n.applied < resume && !has(kBehind)) {
    n.pc = kOpening;
    moves.emit(t, "joiner reads World g{} (resume {}), does not look what it has", g, resume);
  } else if (n.applied == resume - 1 &&
             !(i == kJoiner && has(kJoinFetch) && !moves.whole_result(s, host, resume))) {
    if (!moves.whole_result(s, host, resume))
      moves.violate("I3: result of the resume step not readable on own host");
    accept();
    n.pc = kCatchingUp;
    moves.emit(t, "m{} reads World g{} (resume {}), starts to apply it from its arena", i, g,
               resume);
  } else if (n.applied < resume && i == kJoiner) {
    n.pc = kJoinerCopy;
    moves.emit(t, "joiner reads World g{} (resume {}), will copy", g, resume);
  } else {
    moves.violate(fmt::format("I1/I2: m{} enters World g{} with resume {} but has applied {}", i, g,
                              resume, n.applied));
    moves.emit(t, "m{} reads World g{}", i, g);
  }
}

void Self::catch_up() const {
  const int resume = world.resume;
  if (!moves.whole_result(moves.s, host, resume))
    moves.violate("I3: result overwritten while catching up");
  if (m.applied != resume - 1) moves.violate("I1: applied twice");
  moves.emit(with([&](Member& n) { n.applied = static_cast<Byte>(resume), n.pc = kOpening; }),
             "m{} finished applying {} (catch-up)", i, resume);
}

void Self::open_first() const {
  const int g = world.generation;
  const int next = world.resume + 1;
  if (has(kJoinFails) && m.revoked_up_to >= g) {
    return moves.emit(at(!moves.o.finish && m.applied >= moves.o.steps ? kDone : kIdle),
                      "m{} does not open g{}: already revoked", i, g);
  }
  State t = moves.s;
  Member& n = t.m[i];
  if (!has(kJoinFails)) n.revoked_up_to = 0;
  n.marked = 0;
  n.generation = static_cast<Byte>(g);
  if (next > moves.o.last()) {
    n.phase = kCommitted;
    n.step = static_cast<Byte>(next - 1);
    n.pc = moves.o.finish ? kFinished : kDone;
  } else {
    n.phase = kOpen;
    n.step = n.at = static_cast<Byte>(next);
    n.pc = begin(next);
  }
  moves.emit(t, "m{} opens (g{}, step {})", i, g, next);
}

void Self::compute() const {
  const int mine = moves.share(m.world, m.at, i);
  if (m.applied != m.at - 1) moves.violate("I2: opens a step without the state of the one before");
  if (m.sealed_step == m.at && (m.sealed & mine) == mine)
    return moves.emit(at(kReduce), "m{} has its leaves of {} already", i, m.at);
  if (mine == 0) return moves.emit(at(kReduce), "m{} has nothing to compute for {}", i, m.at);
  State t = at(kComputing);
  Member& n = t.m[i];
  if (m.sealed_step != m.at) {
    if (has(kUnseal)) n.sealed_step = n.sealed = 0;
    n.data = 0;
  }
  moves.emit(t, "m{} starts computing step {} into its gradient buffers", i, m.at);
}

void Self::seal() const {
  State t = at(kReduce);
  Member& n = t.m[i];
  if (n.sealed_step != m.at) n.sealed = 0;
  n.sealed_step = m.at;
  n.data = m.torn != 0 || m.bad != 0 ? kGarbage : m.at;
  n.torn = 0;
  n.sealed |= static_cast<Byte>(moves.share(m.world, m.at, i));
  moves.emit(t, "m{} seals its leaves of step {}", i, m.at);
}

void Self::reduce() const {
  if (revoked()) moves.emit(at(kIdle), "m{} sees the revoke in reduce", i);
  Byte value = m.at;
  for (int k = 0; k < moves.o.intervals(); ++k) {
    const int source = moves.source(m.world, m.at, k);
    const Member& x = moves.s.m[source];
    if (!moves.alive(moves.o.host_of(source)) || x.sealed_step != m.at || (x.sealed >> k & 1) == 0)
      return;
    if (x.data != m.at) value = kGarbage;
  }
  const auto left = [&](int k) {
    const Member& x = moves.s.m[k];
    const bool here = moves.o.host_of(k) == host && x.pc != kDead;
    return !here || moves.generation(x.world) >= world.generation;
  };
  if (has(kLeaveFirst) && !all_of_world(left)) return;
  moves.emit(with([&](Member& n) { n.pc = kWrite, n.value = value; }),
             "m{} reads all seals of step {}", i, m.at);
}

void Self::write() const {
  State t = at(kVoteWait);
  write_slice(moves, &t, i);
  t.done[moves.votes_of(m.world)][i] = m.at;
  moves.emit(t, "m{} writes its slice of result {} (g{})", i, m.at, world.generation);
}

void Self::vote() const {
  if (revoked()) moves.emit(at(kIdle), "m{} sees the revoke before voting", i);
  const auto written = [&](int k) {
    return moves.o.host_of(k) != host || moves.s.done[moves.votes_of(m.world)][k] >= m.at;
  };
  if (m.pc == kVoteWait && !all_of_world(written)) return;
  State t = at(m.pc == kVoteWait ? kCommitWait : kFinishWait);
  t.vote[moves.votes_of(m.world)][i] = m.at;
  moves.emit(t, "m{} votes {} (g{})", i, m.at, world.generation);
}

void Self::commit() const {
  if (revoked()) moves.emit(at(kIdle), "m{} sees the revoke after voting", i);
  const Agent& a = moves.s.a[host];
  const auto voted = [&](int k) {
    const bool copies = k == kJoiner && !has(kLearnVote) && moves.s.m[k].pc == kJoinerCopy;
    return moves.s.vote[moves.votes_of(m.world)][k] >= m.at || copies;
  };
  if (!all_of_world(voted)) return;
  if (has(kLeaseWord) && a.lease_over != 0)
    return moves.emit(at(kIdle), "m{} finds the lease at its end, does not commit {}", i, m.at);
  if (m.phase != kOpen || m.generation != world.generation || m.step != m.at) {
    return moves.emit(at(kIdle), "m{} loses the compare-and-swap of {}", i, m.at);
  }
  const bool given_up = moves.o.check_fence && a.cut != 0 && moves.s.at == kEnd;
  if (given_up || world.generation < moves.s.from_snapshot) {
    moves.violate("I6: a cut-off host commits after the coordinator gave the World up");
  }
  const Pc next = m.pc == kCommitWait ? kApply : kFinished;
  moves.emit(with([&](Member& n) { n.phase = kCommitted, n.pc = next; }), "m{} commits {} (g{})", i,
             m.at, world.generation);
}

void Self::apply() const {
  if (!moves.whole_result(moves.s, host, m.at)) {
    moves.violate(
        "I3/bits: result of the committed step is not whole or not the right bits while applying");
  }
  if (m.applied != m.at - 1) moves.violate("I1: applied twice or skipped");
  const Pc next = m.at == moves.o.last() ? kDone : kNext;
  moves.emit(with([&](Member& n) { n.applied = m.at, n.pc = next; }), "m{} finished applying {}", i,
             m.at);
}

void Self::open_next() const {
  const int next = m.at + 1;
  const auto opened = [&](Member& n) {
    n.phase = kOpen, n.step = n.at = static_cast<Byte>(next), n.pc = begin(next);
  };
  if (m.pc == kNext2) {  // without the rule it looks first and stores blindly later
    return moves.emit(with([&](Member& n) { opened(n), n.generation = world.generation; }),
                      "m{} stores open(g{}, step {})", i, world.generation, next);
  }
  if (next > moves.o.steps && !has(kFinishFirst)) {
    return moves.emit(with([](Member& n) { n.pc = kDead, n.exited = 1; }),
                      "m{} exits with status 0", i);
  }
  if (has(kReopen)) {
    if (m.marked != 0) return moves.emit(at(kIdle), "m{} may not open {}: revoked", i, next);
    return moves.emit(with(opened), "m{} opens step {}", i, next);
  }
  if (revoked()) return moves.emit(at(kIdle), "m{} sees the revoke after applying {}", i, m.at);
  moves.emit(at(kNext2), "m{} sees no revoke bit after applying {}", i, m.at);
}

void Self::finish() const {
  moves.emit(with([&](Member& n) {
               n.pc = kDead, n.exited = 1;
               if (!has(kFinishWord)) n.phase = kNone;  // its slot is given back at once
             }),
             "m{} exits with status 0: finish() is committed", i);
}

}  // namespace

void write_slice(const Moves& moves, State* t, int member) {
  const Member& m = moves.s.m[member];
  const int host = moves.o.host_of(member);
  int peers = 0;
  int rank = 0;
  for (int k = 0; k < kMembers; ++k) {
    if (!moves.contains(m.world, k) || moves.o.host_of(k) != host) continue;
    ++peers;
    rank += k < member ? 1 : 0;
  }
  Byte value = m.value;
  for (int k = 0; k < moves.o.intervals(); ++k) {
    const int source = moves.source(m.world, m.at, k);
    const Member& x = moves.s.m[source];
    // Bytes received from another host stay good until the next World uses the receive buffers
    // again.
    const bool stale = moves.o.host_of(source) == host ? x.sealed_step != m.at || x.data != m.at
                                                       : moves.generation(moves.s.a[host].world) >
                                                             moves.s.w[m.world].generation;
    if (stale) value = kGarbage;
  }
  for (int k = 0; k < 3; ++k) {
    if (k == rank || (rank == peers - 1 && k > rank))
      t->result[host][m.at % moves.o.result_buffers][k] = value;
  }
}

void member_moves(const Moves& moves) {
  for (int i = 0; i < kMembers; ++i) {
    const Self self{moves, i};
    switch (self.m.pc) {
      case kDead:
        break;
      case kIdle:
      case kDone:
        self.enter_world();
        break;
      case kCatchingUp:
        self.catch_up();
        break;
      case kOpening:
        self.open_first();
        break;
      case kCompute:
        self.compute();
        break;
      case kComputing:
        self.seal();
        break;
      case kReduce:
        self.reduce();
        break;
      case kWrite:
        self.write();
        break;
      case kVoteWait:
      case kFinishVote:
        self.vote();
        break;
      case kCommitWait:
      case kFinishWait:
        self.commit();
        break;
      case kApply:
        self.apply();
        break;
      case kNext:
      case kNext2:
        self.open_next();
        break;
      case kFinished:
        self.finish();
        break;
      default:
        learner_moves(moves);
        break;
    }
  }
}

}  // namespace regroup::model::protocol
