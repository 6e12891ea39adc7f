// What may go wrong, and what dead members leave behind. Kinds of faults: k a member killed and
// reaped at once, d a member killed whose death is known before its reap, j the joiner killed, h a
// host lost with its arena, x a living member excluded, u one excluded that hangs in the kernel
// when it is killed, c the coordinator killed, p a host cut off but alive, r a regroup without a
// cause, l the joiner's host lost, b a byte of the learner's copy wrong, g the guardian killed, s
// the agent of a host stopped while its members run.
#include <cstring>

#include "tests/model/protocol_moves.h"

namespace regroup::model::protocol {
namespace {

void kill(const Moves& moves, int i, bool reaped) {
  State t = moves.s;
  ++t.faults;
  die(&t, i);
  if (reaped) return moves.emit(t, "FAULT m{} killed", i);
  const Byte pc = moves.s.m[i].pc;
  t.m[i].zombie = 1;
  t.m[i].torn = pc == kComputing ? 1 : 0;
  t.m[i].late = pc == kWrite && !moves.has(kLastWrite) ? 1 : 0;
  moves.emit(t, "FAULT m{} killed, not reaped yet", i);
}

void exclude(const Moves& moves, int i, bool reapable) {
  const State& s = moves.s;
  if (s.at != kSteady || i == kJoiner || s.m[i].pc == kDead || !moves.contains(s.world, i) ||
      (s.excluded >> i & 1) != 0)
    return;
  State t = s;
  ++t.faults;
  t.excluded |= static_cast<Byte>(1 << i);
  if (!reapable) t.unreapable |= static_cast<Byte>(1 << i);
  moves.emit(t, "FAULT m{} stopped, excluded{}", i, reapable ? "" : ", hangs in the kernel");
}

void lose_host(const Moves& moves, int h, bool with_arena) {
  const Agent& a = moves.s.a[h];
  if (a.alive == 0 || (!with_arena && a.cut != 0)) return;
  State t = moves.s;
  ++t.faults;
  if (with_arena)
    t.a[h].alive = 0;
  else
    t.a[h].cut = kLinkDown;
  moves.emit(t, "FAULT host {} {}", h, with_arena ? "lost with its arena" : "cut off but alive");
}

void kill_coordinator(const Moves& moves) {
  if (moves.s.at == kCoordinatorDead || moves.s.incarnation >= 4) return;
  State t = moves.s;
  ++t.faults;
  end_coordinator(moves, &t);
  moves.emit(t, "FAULT coordinator killed");
}

void stop_agent(const Moves& moves, int h) {
  const Agent& a = moves.s.a[h];
  if (a.alive == 0 || a.cut != kLinked) return;
  State t = moves.s;
  ++t.faults;
  t.a[h].cut = kAgentStopped;
  moves.emit(t, "FAULT agent {} stopped, its members run", h);
}

void spoil_learner(const Moves& moves) {
  const Member& m = moves.s.m[kJoiner];
  if (m.bad != 0 || (m.pc != kLearnerCopy && m.pc != kLearner)) return;
  State t = moves.s;
  ++t.faults;
  t.m[kJoiner].bad = 1;
  moves.emit(t, "FAULT a byte of the learner's state is wrong");
}

void kill_guardian(const Moves& moves) {
  if (moves.s.guardian_dead != 0) return;
  State t = moves.s;
  ++t.faults;
  t.guardian_dead = 1;
  moves.emit(t, "FAULT guardian killed");
}

void fault(const Moves& moves, char kind) {
  const State& s = moves.s;
  switch (kind) {
    case 'k':
    case 'd':
      for (int i = 0; i < kJoiner; ++i) {
        if (s.m[i].pc != kDead) kill(moves, i, kind == 'k');
      }
      break;
    case 'j':
      if (moves.o.joiner && s.m[kJoiner].pc != kDead) kill(moves, kJoiner, true);
      break;
    case 'h':
    case 'p':
      for (const int h : {0, 1}) lose_host(moves, h, kind == 'h');
      break;
    case 'x':
    case 'u':
      for (int i = 0; i < kJoiner; ++i) exclude(moves, i, kind == 'x');
      break;
    case 'l':
      if (moves.o.joiner) lose_host(moves, moves.o.joiner_host, true);
      break;
    case 's':
      for (const int h : {0, 1}) stop_agent(moves, h);
      break;
    case 'b':
      spoil_learner(moves);
      break;
    case 'c':
      kill_coordinator(moves);
      break;
    case 'g':
      kill_guardian(moves);
      break;
    case 'r':
      if (s.at == kSteady && s.wanted == 0) {
        State t = s;
        ++t.faults;
        t.wanted = 1;
        moves.emit(t, "FAULT regroup asked for (resize)");
      }
      break;
    default:
      break;
  }
}

}  // namespace

void end_coordinator(const Moves& moves, State* t) {
  t->at = kCoordinatorDead;
  t->sent = t->reported = t->wanted = t->excluded = t->unreapable = t->differs = 0;
  std::memset(t->report, 0, sizeof t->report);
  t->world = t->next = t->journaled;
  if (t->from_snapshot > t->w[t->journaled].generation) t->from_snapshot = 0;
  Member& joiner = t->m[kJoiner];
  const bool idle =
      joiner.pc == kIdle && joiner.phase == kNone && !moves.contains(t->journaled, kJoiner);
  if (idle || joiner.pc == kLearnerStopped) joiner.pc = kLearner;
  for (Agent& a : t->a) {
    for (int i = 0; i < a.n; ++i) {
      if (a.n_old < 4) a.old[a.n_old++] = a.letters[i];
    }
    a.n = 0;
    std::memset(a.letters, 0, sizeof a.letters);
  }
}

void fault_moves(const Moves& moves) {
  if (moves.s.faults >= moves.o.faults || moves.s.at == kEnd) return;
  for (const char kind : moves.o.kinds) fault(moves, kind);
}

// The address space of a member whose robust futex has fired is still there.
void leftover_moves(const Moves& moves) {
  for (int i = 0; i < kMembers; ++i) {
    const Member& m = moves.s.m[i];
    if (m.zombie == 0) continue;
    State reaped = moves.s;
    reaped.m[i].zombie = reaped.m[i].torn = reaped.m[i].late = 0;
    moves.emit(reaped, "m{} is reaped", i);
    if (m.late != 0) {
      State t = moves.s;
      write_slice(moves, &t, i);
      t.m[i].late = 0;
      moves.emit(t, "another thread of dead m{} stores its slice of result {}", i, m.at);
    }
    const Member& heir = moves.s.m[kJoiner];
    if (m.torn == 0 || heir.slot != i + 1 || (heir.pc != kComputing && heir.sealed_step == 0))
      continue;
    State t = moves.s;
    t.m[i].torn = 0;
    if (heir.pc == kComputing)
      t.m[kJoiner].torn = 1;
    else
      t.m[kJoiner].data = kGarbage;
    moves.emit(t, "a thread of dead m{} writes into the leaf buffers that the joiner has now", i);
  }
}

}  // namespace regroup::model::protocol
