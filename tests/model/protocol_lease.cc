// Time without a coordinator. After 3 s an agent's lease is over and its members are closed; after
// the orphan time-out it ends them. A coordinator that can reach nobody with the state waits out
// the lease of every host whose death is not proved, then goes on from the snapshot of step 0 with
// a new member on host 2.
//
// Time is an order of events: the coordinator has waited long enough when every such lease is over;
// a restart takes less than the orphan time-out.
#include <algorithm>
#include <cstring>

#include "tests/model/protocol_moves.h"

namespace regroup::model::protocol {
namespace {

struct Time {
  const Moves& moves;
  const int h;
  const State& s = moves.s;
  const Agent& a = s.a[h];

  [[nodiscard]] bool has(Rule rule) const { return moves.has(rule); }
  [[nodiscard]] bool without_coordinator() const {
    return a.cut != kLinked || s.at == kCoordinatorDead;
  }
  // The agent closes its members as by a revoke that nobody sent.
  void close(State* t) const {
    Agent& b = t->a[h];
    const Byte g = s.w[a.world].generation;
    if (has(kLeaseClose)) b.pc = 1, b.revoking = g, b.revoker = 0;
    if (has(kLeaseTold)) b.revoked = std::max(b.revoked, g);
  }
  void end_lease() const;
  void end_members() const;
  void go_on() const;
  void heal() const;
};

void Time::end_lease() const {
  if (!without_coordinator() || a.lease_over != 0 || !moves.state_on(h)) return;
  State t = s;
  t.a[h].lease_over = 1;
  if (a.cut == kAgentStopped) return moves.emit(t, "the lease of stopped agent {} is over", h);
  if (a.pc != 0) return;
  close(&t);
  moves.emit(t, "agent {}: its lease is over", h);
}

void Time::end_members() const {
  if (a.cut == kAgentStopped) return;
  const bool lost = s.guardian_dead != 0 && s.at == kCoordinatorDead;
  const bool held = (lost || a.cut == kLinkDown) && moves.lease_is_out(h);
  if (!held && (has(kHold) || !without_coordinator())) return;
  State t = s;
  t.a[h].alive = 0;
  if (a.cut == kLinked) t.ended |= static_cast<Byte>(1 << h);
  moves.emit(t, "agent {} ends its members", h);
}

// A stopped agent is continued. Its connection is closed by now.
void Time::go_on() const {
  if (a.cut != kAgentStopped) return;
  State t = s;
  t.a[h].cut = kLinkDown;
  if (a.lease_over != 0) close(&t);
  moves.emit(t, "agent {} is continued", h);
}

// The agent says hello. Who is in no World that counts is ended, the others' letters are sent
// again.
void Time::heal() const {
  if (a.cut != kLinkDown || s.at == kCoordinatorDead || s.at == kEnd) return;
  State t = s;
  Agent& b = t.a[h];
  b.cut = kLinked;
  b.lease_over = b.n = b.n_old = 0;
  b.incarnation = s.incarnation;
  std::memset(b.letters, 0, sizeof b.letters);
  std::memset(b.old, 0, sizeof b.old);
  const int world = s.at == kDecided ? s.next : s.world;
  bool counts = false;
  for (int i = 0; i < kMembers; ++i) {
    if (moves.o.host_of(i) != h || s.m[i].phase == kNone) continue;
    counts |= moves.contains(world, i);
    if (!moves.contains(world, i)) die(&t, i);
  }
  const bool differs = a.world != world || a.revoked >= moves.generation(world);
  if (counts && differs) t.wanted = 1;
  if (s.at == kRevoking || s.at == kSayHello) t.sent &= static_cast<Byte>(~(1 << h));
  if (s.at == kWaitLease && counts) start_revoke(&t);
  moves.emit(t, "the link of host {} is back", h);
}

}  // namespace

void lease_moves(const Moves& moves) {
  for (int h = 0; moves.o.lease && h < kHosts; ++h) {
    if (!moves.alive(h)) continue;
    const Time time{moves, h};
    time.end_lease();
    time.end_members();
    if (moves.o.heals) time.go_on(), time.heal();
  }
}

void snapshot_moves(const Moves& moves) {
  const State& s = moves.s;
  for (int h = 0; h < kHosts; ++h) {
    const bool may_live = moves.alive(h) && !moves.reachable(h);
    if (moves.has(kLeaseWait) && may_live && !moves.lease_is_out(h)) return;
  }
  State t = s;
  const bool numbers = s.worlds < kWorlds && s.w[s.world].generation + 1 < kGenerations;
  if (moves.o.joiner_host != 2 || !moves.reachable(2) || !numbers) {
    t.at = kEnd;
    return moves.emit(t, "coordinator: nowhere to go on, end");
  }
  Member& m = t.m[kJoiner];
  std::memset(&m, 0, sizeof m);
  m.pc = kIdle;
  const Agent& a = s.a[2];
  if (moves.has(kNewSlot)) m.revoked_up_to = std::max(a.revoked, s.w[a.world].generation);
  World& x = t.w[s.worlds];
  x = {};
  x.generation = static_cast<Byte>(s.w[s.world].generation + 1);
  x.incarnation = s.incarnation;
  x.members = 1 << kJoiner;
  std::memset(x.source, kJoiner, sizeof x.source);
  t.next = t.worlds++;
  t.joined = 1;
  t.from_snapshot = x.generation;
  t.at = kDecided;
  moves.emit(t,
             "coordinator goes on from the snapshot of step 0: World g{}, a new member on host 2",
             x.generation);
}

}  // namespace regroup::model::protocol
