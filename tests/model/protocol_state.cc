// Readings of a State, its canonical form, its first value.
#include <algorithm>
#include <cstring>

#include "tests/model/protocol_moves.h"

namespace regroup::model::protocol {
namespace {

template <class T>
void clear(T* value) {
  std::memset(static_cast<void*>(value), 0, sizeof *value);
}

bool is_learner(Byte pc) {
  return pc == kLearnerNone || pc == kLearnerCopy || pc == kLearner || pc == kLearnerReady ||
         pc == kLearnerStopped;
}

// Returns the oldest generation that a living member is in.
int canonical_members(const Options& o, State* t) {
  int oldest = kGenerations;
  for (int i = 0; i < kMembers; ++i) {
    Member& m = t->m[i];
    if (m.pc == kDead) {
      m.donor = m.revoked_up_to = m.ring = m.restarts = m.bad = 0;
      if (m.late == 0) m.world = m.at = m.value = 0;
    } else {
      if (!is_learner(m.pc) && m.pc != kIdle)
        oldest = std::min<int>(oldest, t->w[m.world].generation);
      if (m.pc == kIdle || m.pc == kDone) m.at = 0;
      if (m.pc != kWrite) m.value = 0;
    }
    if (t->a[o.host_of(i)].alive == 0) clear(&m);
  }
  return oldest;
}

void canonical_agents(const Options& o, State* t) {
  for (int h = 0; h < kHosts; ++h) {
    Agent& a = t->a[h];
    if (a.alive == 0) {
      clear(&a);
      clear(&t->result[h]);
      continue;
    }
    if (a.cut != 0 && !o.lease) a.n = a.n_old = 0, clear(&a.letters), clear(&a.old);
    if (!o.has(kFence)) continue;
    int kept = 0;
    for (int i = 0; i < a.n_old; ++i) {
      if (a.old[i].incarnation >= a.incarnation) a.old[kept++] = a.old[i];
    }
    for (int i = kept; i < 4; ++i) a.old[i] = {};
    a.n_old = static_cast<Byte>(kept);
  }
}

void canonical_worlds(State* t) {
  bool used[kWorlds] = {};
  used[t->world] = used[t->journaled] = used[t->next] = true;
  for (const Member& m : t->m) {
    if (m.pc != kDead || m.late != 0) used[m.world] = true;
  }
  for (const Agent& a : t->a) {
    used[a.world] = true;
    for (int i = 0; i < a.n; ++i) used[a.letters[i].id] |= a.letters[i].type == 2;
    for (int i = 0; i < a.n_old; ++i) used[a.old[i].id] |= a.old[i].type == 2;
  }
  for (int i = 0; i < t->worlds; ++i) {
    if (!used[i]) clear(&t->w[i]);
  }
}

}  // namespace

void Moves::canonical(State* t) const {
  const int oldest = canonical_members(o, t);
  for (int g = 0; o.votes_by_generation && g < oldest; ++g) clear(&t->vote[g]), clear(&t->done[g]);
  canonical_agents(o, t);
  canonical_worlds(t);
}

int Moves::committed(int member) const {
  const Member& m = s.m[member];
  if (m.phase == kNone) return 0;
  return m.phase == kCommitted ? m.step : m.step - 1;
}

int Moves::source(int world, int step, int k) const {
  const World& w = s.w[world];
  if (step == w.resume + 1) return w.source[k];
  int n = 0;
  int members[kMembers];
  for (int i = 0; i < kMembers; ++i) {
    if (contains(world, i)) members[n++] = i;
  }
  return members[k % n];
}

int Moves::share(int world, int step, int member) const {
  int bits = 0;
  for (int k = 0; k < o.intervals(); ++k) {
    if (source(world, step, k) == member) bits |= 1 << k;
  }
  return bits;
}

bool Moves::whole_result(const State& t, int host, int step) const {
  const auto& slices = t.result[host][step % o.result_buffers];
  return std::all_of(slices, slices + 3, [&](Byte slice) { return slice == step; });
}

int Moves::hosts_needed() const {
  int bits = 0;
  for (int i = 0; i < kMembers; ++i) {
    if (contains(s.world, i) && reachable_member(i)) bits |= 1 << o.host_of(i);
  }
  const int learner = 1 << o.host_of(kJoiner);
  const bool asked = (s.sent & learner) != 0 && reachable_member(kJoiner);
  if (o.ring > 0 && s.at == kRevoking && (learner_ready() || asked)) bits |= learner;
  return bits;
}

bool Moves::learner_ready() const {
  const Byte pc = s.m[kJoiner].pc;
  const bool ready = o.ring > 0 ? pc == kLearnerReady || pc == kLearnerStopped : pc == kLearner;
  return o.joiner && ready && reachable_member(kJoiner);
}

bool Moves::state_on(int host) const {
  for (int i = 0; i < kMembers; ++i) {
    if (o.host_of(i) == host && s.m[i].pc != kDead && s.m[i].phase != kNone) return true;
  }
  return false;
}

bool Moves::lease_is_out(int host) const {
  const Agent& a = s.a[host];
  return !state_on(host) || (a.lease_over != 0 && (a.pc == 0 || a.cut == kAgentStopped));
}

void die(State* t, int member) { t->m[member].pc = kDead; }

void start_revoke(State* t) {
  t->at = kRevoking;
  t->sent = t->reported = 0;
  clear(&t->report);
}

State initial(const Options& o) {
  State s;
  clear(&s);
  int n = 0;
  int members[4] = {};
  for (const int host : {0, 1}) {
    for (int i = 0; i < o.on_host[host]; ++i) members[n++] = 2 * host + i;
    s.a[host].alive = o.on_host[host] > 0 ? 1 : 0;
    s.a[host].incarnation = 1;
  }
  World& world = s.w[0];
  world.generation = world.incarnation = s.worlds = s.incarnation = 1;
  for (int k = 0; k < n; ++k) {
    world.members |= static_cast<Byte>(1 << members[k]);
    world.source[k] = static_cast<Byte>(members[k]);
    Member& m = s.m[members[k]];
    m.pc = kCompute;
    m.phase = kOpen;
    m.generation = m.step = m.at = 1;
  }
  if (o.joiner) s.m[kJoiner].pc = kLearnerNone;
  if (o.joiner_host == 2 && (o.joiner || o.lease)) s.a[2].alive = s.a[2].incarnation = 1;
  Moves{{o, s, false, nullptr, nullptr}}.canonical(&s);
  return s;
}

bool goal(const Options& o, const State& s) {
  if (s.at == kEnd) return true;
  if (s.guardian_dead != 0 && s.at == kCoordinatorDead) {
    return std::all_of(s.m, s.m + kMembers, [](const Member& m) { return m.pc == kDead; });
  }
  if (s.at != kSteady) return false;
  for (int i = 0; i < kMembers; ++i) {
    if ((s.w[s.world].members >> i & 1) == 0) continue;
    const bool done =
        o.finish ? s.m[i].exited != 0 : s.m[i].pc == kDone && s.m[i].applied == o.steps;
    if (!done) return false;
  }
  return true;
}

void successors(const Options& o, const State& s, bool labels, std::vector<Successor>* out,
                std::string* violation) {
  out->clear();
  violation->clear();
  const Moves moves{{o, s, labels, out, violation}};
  member_moves(moves);
  agent_moves(moves);
  coordinator_moves(moves);
  lease_moves(moves);
  leftover_moves(moves);
  const std::size_t faults = out->size();
  fault_moves(moves);
  for (std::size_t i = faults; i < out->size(); ++i) (*out)[i].fault = true;
}

Rule rule_named(std::string_view name) {
  return static_cast<Rule>(std::find(kRuleNames, kRuleNames + kRules, name) - kRuleNames);
}

std::string describe(const State& s) {
  constexpr const char* kPcs[] = {"dead",      "idle",          "catching up",    "opening",
                                  "compute",   "computing",     "reduce",         "write",
                                  "vote wait", "commit wait",   "apply",          "next",
                                  "next2",     "done",          "learner none",   "learner copy",
                                  "learner",   "joiner copy",   "finish vote",    "finish wait",
                                  "finished",  "learner ready", "learner stopped"};
  constexpr const char* kPhases[] = {"none", "open", "committed", "closed"};
  std::string text;
  for (int i = 0; i < kMembers; ++i) {
    const Member& m = s.m[i];
    if (m.pc == kDead && m.phase == kNone) continue;
    text += fmt::format(
        "     m{} {:<12} word={}(g{}, step {}){} revoked up to {} in g{} applied {}{}{}\n", i,
        kPcs[m.pc], kPhases[m.phase], m.generation, m.step, m.marked != 0 ? "+revoked" : "",
        m.revoked_up_to, s.w[m.world].generation, m.applied, m.zombie != 0 ? ", not reaped" : "",
        m.exited != 0 ? ", exited with status 0" : "");
  }
  return text + fmt::format("     coordinator mode {}, World g{}\n", s.at, s.w[s.world].generation);
}

}  // namespace regroup::model::protocol
