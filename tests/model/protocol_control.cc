// The moves of the coordinator.
#include <algorithm>
#include <cassert>
#include <cstring>

#include "tests/model/protocol_moves.h"

namespace regroup::model::protocol {
namespace {

struct Coordinator {
  const Moves& moves;
  const State& s = moves.s;
  const World& world = s.w[s.world];

  [[nodiscard]] bool has(Rule rule) const { return moves.has(rule); }
  [[nodiscard]] bool in_world(int i) const { return moves.contains(s.world, i); }

  [[nodiscard]] bool wants_change() const;
  void watch() const;
  void revoke() const;
  void decide() const;
  void announce() const;
  void restart() const;
  void hello() const;
  // Host to which the next letter goes; -1 if all have theirs.
  [[nodiscard]] int next_host() const;
  [[nodiscard]] int survivors() const;
  [[nodiscard]] int resume_of(int survivors) const;
  // A learner with a ring has said what it has, and stopped there.
  [[nodiscard]] bool admits() const {
    if (moves.o.ring == 0) return moves.learner_ready();
    const bool learns = s.m[kJoiner].pc == kLearner || moves.learner_ready();
    return !in_world(kJoiner) && s.report[kJoiner] != 0 && learns &&
           moves.reachable_member(kJoiner);
  }
  [[nodiscard]] int learned() const {
    return moves.o.ring > 0 && !in_world(kJoiner) ? s.report[kJoiner] - 1 : s.m[kJoiner].applied;
  }
  [[nodiscard]] bool finished(int resume) const { return resume > moves.o.steps; }
  void kill_excluded(State* t) const;
  void plan(State* t, int survivors, int resume) const;
  void check(const State& t, int survivors, int resume) const;
  void send(State* t, int h, Letter letter) const;
};

bool Coordinator::wants_change() const {
  if (s.wanted != 0 || s.excluded != 0) return true;
  for (int i = 0; i < kMembers; ++i) {
    const bool lost = (s.m[i].pc == kDead && s.m[i].exited == 0) || !moves.reachable_member(i);
    if (in_world(i) && lost) return true;
  }
  for (int k = 0; has(kSeedHost) && k < moves.o.intervals(); ++k) {
    if (!moves.reachable_member(world.source[k])) return true;
  }
  return moves.learner_ready() && !in_world(kJoiner) &&
         !(has(kFinishJoin) && finished(world.resume));
}

void Coordinator::watch() const {
  if (!wants_change()) return;
  State t = s;
  start_revoke(&t);
  moves.emit(t, "coordinator: change wanted, revoke g{}", world.generation);
}

int Coordinator::next_host() const {
  const int left = moves.hosts_needed() & ~s.sent;
  for (int h = 0; h < kHosts; ++h) {
    if ((left >> h & 1) != 0) return h;
  }
  return -1;
}

void Coordinator::send(State* t, int h, Letter letter) const {
  t->sent |= static_cast<Byte>(1 << h);
  Agent& a = t->a[h];
  assert(a.n < 3);
  if (moves.reachable(h)) a.letters[a.n++] = letter;
}

void Coordinator::revoke() const {
  if (const int h = next_host(); h >= 0) {
    State t = s;
    send(&t, h, {1, s.incarnation, world.generation});
    moves.emit(t, "coordinator sends revoke g{} to agent {}", world.generation, h);
  }
  const int needed = moves.hosts_needed();
  if ((s.reported & needed) == needed && s.worlds < kWorlds && world.generation + 1 < kGenerations)
    decide();
}

int Coordinator::survivors() const {
  int bits = 0;
  for (int i = 0; i < kMembers; ++i) {
    if (in_world(i) && s.m[i].pc != kDead && moves.reachable_member(i) &&
        (s.excluded >> i & 1) == 0)
      bits |= 1 << i;
  }
  return bits;
}

int Coordinator::resume_of(int survivors) const {
  int resume = 0;
  for (int i = 0; i < kMembers; ++i) {
    const bool counts =
        (survivors >> i & 1) != 0 || (has(kAllWords) && in_world(i) && moves.reachable_member(i));
    if (counts) resume = std::max<int>(resume, s.report[i]);
  }
  return has(kCatchUp) ? std::max<int>(resume, world.resume) : resume;
}

void Coordinator::kill_excluded(State* t) const {
  for (int i = 0; i < kMembers; ++i) {
    if ((s.excluded >> i & 1) == 0 || s.m[i].pc == kDead || !moves.reachable_member(i)) continue;
    die(t, i);
    if ((s.unreapable >> i & 1) != 0) t->m[i].zombie = 1;
  }
  t->excluded = t->unreapable = 0;
}

void Coordinator::plan(State* t, int survivors, int resume) const {
  World& x = t->w[t->worlds];
  x = {};
  x.generation = s.restarted != 0 && !has(kNewNumber) ? world.generation
                                                      : static_cast<Byte>(world.generation + 1);
  x.incarnation = s.incarnation;
  x.members = static_cast<Byte>(survivors);
  x.resume = static_cast<Byte>(resume);
  int members[kMembers];
  int n = 0;
  int turn = 0;
  for (int i = 0; i < kMembers; ++i) {
    if ((survivors >> i & 1) != 0) members[n++] = i;
  }
  for (int k = 0; k < moves.o.intervals(); ++k) {
    int holder = -1;
    for (int i = 0; i < kMembers && holder < 0; ++i) {
      const Member& m = s.m[i];
      if (m.sealed_step == resume + 1 && (m.sealed >> k & 1) != 0 && moves.reachable_member(i))
        holder = i;
    }
    if (holder < 0) {
      const int next = turn++ % n;
      holder = members[moves.o.plan_reversed ? n - 1 - next : next];
    }
    x.source[k] = static_cast<Byte>(holder);
  }
}

void Coordinator::check(const State& t, int survivors, int resume) const {
  for (int i = 0; i < kMembers; ++i) {
    const bool behind = (survivors >> i & 1) != 0 && i != kJoiner && s.m[i].applied < resume &&
                        t.m[i].pc != kApply && t.m[i].pc != kDead;
    if (behind && !finished(resume) && !moves.whole_result(t, moves.o.host_of(i), resume)) {
      moves.violate("I3: a surviving host cannot read the result of the resume step");
    }
    const bool success = s.m[i].exited != 0 && moves.reachable_member(i);
    if (success && !finished(resume)) {
      moves.violate(
          fmt::format("I7: m{} exited with success, and a World goes on after {}", i, resume));
    }
  }
  if (finished(resume) && (survivors >> kJoiner & 1) != 0 && !in_world(kJoiner)) {
    moves.violate("I8: a joiner is admitted after finish() committed");
  }
}

void Coordinator::decide() const {
  State t = s;
  int left = survivors();
  bool state = false;
  for (int i = 0; i < kMembers; ++i) {
    const bool has_state = i != kJoiner || s.m[i].phase != kNone || s.from_snapshot != 0;
    state |= (left >> i & 1) != 0 && has_state;
  }
  t.sent = t.reported = t.wanted = 0;
  if (t.m[kJoiner].pc == kLearnerStopped) t.m[kJoiner].pc = kLearner;
  if (!state) {
    t.at = moves.o.lease ? kWaitLease : kEnd;
    return moves.emit(t, "coordinator: nobody left with the state{}", moves.o.lease ? "" : ", end");
  }
  int resume = resume_of(left);
  if (admits() && !(has(kFinishJoin) && finished(resume))) {
    left |= 1 << kJoiner;
    t.joined = 1;
    t.m[kJoiner].pc = kIdle;
    if (has(kAllWords)) resume = std::max<int>(resume, learned());
  } else if (has(kAllWords) && (left >> kJoiner & 1) != 0) {
    resume = std::max<int>(resume, s.m[kJoiner].applied);
  }
  kill_excluded(&t);
  plan(&t, left, resume);
  t.restarted = 0;
  t.next = t.worlds++;
  t.at = has(kJournal) ? kDecided : kAnnounce;
  std::memset(t.report, 0, sizeof t.report);
  if (!has(kJournal)) t.world = t.next;
  check(t, left, resume);
  moves.emit(t, "coordinator decides World g{}: members {:#x}, resume {}", t.w[t.next].generation,
             left, resume);
}

void Coordinator::announce() const {
  State t = s;
  if (const int h = next_host(); h >= 0) {
    send(&t, h, {2, s.incarnation, s.world});
    return moves.emit(t, "coordinator sends World g{} to agent {}", world.generation, h);
  }
  t.at = kSteady;
  t.sent = 0;
  t.journaled = s.world;
  moves.emit(t, "coordinator is done announcing g{}", world.generation);
}

void Coordinator::restart() const {
  if (s.guardian_dead != 0) return;
  if (s.ended != 0)
    moves.violate("I9: members are ended, and the guardian restarts the coordinator");
  State t = s;
  t.incarnation =
      static_cast<Byte>((has(kIncarnation) ? s.incarnation : s.w[s.journaled].incarnation) + 1);
  t.world = t.next = s.journaled;
  t.sent = t.reported = t.differs = 0;
  t.restarted = 1;
  t.joined = moves.contains(s.journaled, kJoiner) ? 1 : 0;
  t.at = has(kHello) ? kSayHello : kSteady;
  moves.emit(t, "guardian restarts the coordinator: incarnation {}, journal says g{}",
             t.incarnation, moves.generation(s.journaled));
}

void Coordinator::hello() const {
  State t = s;
  if (const int h = next_host(); h >= 0) {
    t.sent |= static_cast<Byte>(1 << h);
    if (has(kFence)) t.a[h].incarnation = s.incarnation;
    t.a[h].lease_over = 0;
    if (s.a[h].world != s.journaled || s.a[h].revoked >= moves.generation(s.journaled))
      t.differs = 1;
    return moves.emit(t, "agent {} says hello: World g{}, revoked up to g{}", h,
                      moves.generation(s.a[h].world), s.a[h].revoked);
  }
  t.sent = 0;
  if (s.differs != 0)
    start_revoke(&t);
  else
    t.at = kSteady, t.restarted = 0;
  t.differs = 0;
  moves.emit(t, "{}",
             s.differs != 0 ? "coordinator: agents differ from the journal, regroup"
                            : "coordinator: agents agree with the journal");
}

}  // namespace

void coordinator_moves(const Moves& moves) {
  const Coordinator c{moves};
  if (moves.s.guardian_dead != 0 && moves.s.at != kCoordinatorDead && moves.s.at != kEnd) {
    State t = moves.s;
    end_coordinator(moves, &t);
    moves.emit(t, "coordinator ends, its guardian is dead");
  }
  switch (moves.s.at) {
    case kSteady:
      return c.watch();
    case kRevoking:
      return c.revoke();
    case kDecided: {
      State t = moves.s;
      t.journaled = t.world = moves.s.next;
      t.at = kAnnounce;
      t.sent = 0;
      return moves.emit(t, "coordinator journals g{} (fdatasync)", moves.generation(moves.s.next));
    }
    case kAnnounce:
      return c.announce();
    case kCoordinatorDead:
      return c.restart();
    case kSayHello:
      return c.hello();
    case kWaitLease:
      return snapshot_moves(moves);
    default:
      return;
  }
}

}  // namespace regroup::model::protocol
