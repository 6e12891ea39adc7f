// The moves of agents that have a coordinator: they close words, report, and accept Worlds.
#include <algorithm>

#include "tests/model/protocol_moves.h"

namespace regroup::model::protocol {
namespace {

// One step of the revoke that agent `h` is working off: per word first the state, then the
// doorbell.
const char* close_word(const Moves& moves, const Agent& a, Member* n) {
  const bool match =
      moves.has(kRevokeOld) ? n->generation <= a.revoking : n->generation == a.revoking;
  if (n->phase == kOpen && match) {
    n->phase = kClosed, n->generation = a.revoking;
    return "open -> closed";
  }
  if (n->phase == kClosed && moves.has(kJoinFails) && n->generation < a.revoking) {
    n->generation = a.revoking;
    return "closed up to the new generation";
  }
  if (n->phase == kCommitted && moves.has(kReopen) && (match || n->marked != 0)) {
    n->marked = 1;
    if (n->generation < a.revoking) n->generation = a.revoking;
    return "committed, marked revoked";
  }
  if (n->phase == kCommitted) return "compare-and-swap fails: committed";
  return n->phase == kOpen ? "compare-and-swap fails: word is of another generation"
                           : "nothing to close";
}

void report(const Moves& moves, int h) {
  const State& s = moves.s;
  const Agent& a = s.a[h];
  State t = s;
  t.a[h].pc = t.a[h].revoking = t.a[h].revoker = 0;
  if (s.at != kRevoking || s.incarnation != a.revoker || moves.generation(s.world) != a.revoking ||
      !moves.reachable(h)) {
    return moves.emit(t, "agent {}: report goes nowhere", h);
  }
  t.reported |= static_cast<Byte>(1 << h);
  for (int q = 0; q < kMembers; ++q) {
    if (moves.o.host_of(q) == h) t.report[q] = static_cast<Byte>(moves.committed(q));
  }
  if (moves.o.ring > 0 && moves.o.host_of(kJoiner) == h && s.m[kJoiner].pc == kLearnerReady) {
    t.report[kJoiner] = static_cast<Byte>(s.m[kJoiner].applied + 1);
    if (moves.has(kLearnStop)) t.m[kJoiner].pc = kLearnerStopped;
  }
  moves.emit(t, "agent {} reports (revoke g{})", h, a.revoking);
}

void go_on_revoking(const Moves& moves, int h) {
  const Agent& a = moves.s.a[h];
  int k = (a.pc - 1) / 2;
  int half = (a.pc - 1) % 2;
  const auto skipped = [&] {
    const Member& m = moves.s.m[k];
    return moves.o.host_of(k) != h || (m.phase == kNone && m.pc == kDead);
  };
  while (k < kMembers && skipped()) ++k, half = 0;
  if (k == kMembers) return report(moves, h);
  State t = moves.s;
  Member& n = t.m[k];
  Agent& b = t.a[h];
  const auto raise = [&] { n.revoked_up_to = std::max(n.revoked_up_to, a.revoking); };
  const auto next_word = static_cast<Byte>(2 * (k + 1) + 1);
  if (half == 1) {
    if (moves.has(kJoinFails))
      raise();
    else
      n.revoked_up_to = 1;
    b.pc = next_word;
    return moves.emit(t, "agent {} ORs the revoke bit (g{}) into m{}'s doorbell", h, a.revoking, k);
  }
  const char* what = close_word(moves, a, &n);
  const bool at_once = moves.has(kJoinFails) && moves.has(kReopen);
  if (at_once) raise();
  b.pc = at_once ? next_word : static_cast<Byte>(2 * k + 2);
  moves.emit(t, "agent {}, revoke g{}, word of m{}: {}", h, a.revoking, k, what);
}

Letter take(Agent* a, bool old) {
  Letter* letters = old ? a->old : a->letters;
  const int room = old ? 4 : 3;
  const Letter first = letters[0];
  for (int i = 1; i < room; ++i) letters[i - 1] = letters[i];
  letters[room - 1] = {};
  --(old ? a->n_old : a->n);
  return first;
}

void receive(const Moves& moves, int h, bool old) {
  const Agent& a = moves.s.a[h];
  if ((old ? a.n_old : a.n) == 0 || (a.cut != kLinked && !moves.o.lease)) return;
  State t = moves.s;
  Agent& b = t.a[h];
  const Letter x = take(&b, old);
  if (moves.has(kFence) && x.incarnation < a.incarnation) {
    return moves.emit(t, "agent {} refuses a message of incarnation {}", h, x.incarnation);
  }
  b.incarnation = std::max(b.incarnation, x.incarnation);
  if (x.type == 1) {
    b.pc = 1, b.revoking = x.id, b.revoker = x.incarnation;
    b.revoked = std::max(b.revoked, x.id);
    return moves.emit(t, "agent {} receives revoke g{} (incarnation {})", h, x.id, x.incarnation);
  }
  const int g = moves.generation(x.id);
  if (moves.has(kFence) && g <= moves.generation(a.world) && x.id != a.world) {
    return moves.emit(t, "agent {} drops World g{}: not newer than its own", h, g);
  }
  if (moves.has(kLeaseFresh) && a.lease_over != 0) {
    return moves.emit(t, "agent {} drops World g{}: it was sent before its lease ended", h, g);
  }
  b.world = x.id;
  moves.emit(t, "agent {} receives World g{} of incarnation {}", h, g, x.incarnation);
}

}  // namespace

void agent_moves(const Moves& moves) {
  for (int h = 0; h < kHosts; ++h) {
    if (!moves.alive(h) || moves.s.a[h].cut == kAgentStopped) continue;
    if (moves.s.a[h].pc != 0) {
      go_on_revoking(moves, h);
    } else {
      receive(moves, h, false);
      receive(moves, h, true);
    }
  }
}

}  // namespace regroup::model::protocol
