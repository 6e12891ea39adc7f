// The coordinator: it learns of losses, asks the stores that are left, journals a new view and
// announces it. A restarted one has its journal only.
#include <algorithm>
#include <bit>
#include <cstring>

#include "tests/model/ps_moves.h"

namespace regroup::model::ps {
namespace {

bool reachable(const State& s, int h) { return s.h[h].up != 0 && s.h[h].cut == 0; }

bool named(const State& s, int h) {
  const View& view = s.v[s.co.journaled];
  return std::any_of(view.r, view.r + kRanges,
                     [h](const RangeView& r) { return in(r.replicas, h) || r.joining == h + 1; });
}

void learn(const Moves& m, int h) {
  if (in(m.s.co.known, h) || !named(m.s, h)) return;
  if (reachable(m.s, h) && m.s.h[h].server != 0) return;
  State t = m.s;
  t.co.known |= bit(h);
  m.emit(t, "the coordinator learns of the loss of host {}'s server", h);
}

// The range as the next view has it, while it is found.
struct Plan {
  RangeView view;
  int taken_over = 0;  // hosts where a new process attaches to the store
  bool ready = true;   // all that must answer have answered
};

bool has_second_server(const Moves& m, int h) {
  return m.o.two_servers && reachable(m.s, h) && m.s.h[h].server == 0;
}

// Processes that live go before stores whose processes are dead.
int candidates(const Moves& m, int left) {
  const int living = left & ~m.s.co.known;
  return living != 0 ? living : left;
}

// Of several backups the one with the longest log; -1: not all have answered.
int successor_of(const Moves& m, int range, int hosts) {
  if (std::popcount(static_cast<unsigned>(hosts)) == 1)
    return std::countr_zero(static_cast<unsigned>(hosts));
  int best = -1;
  int most = -1;
  for (int h = 0; h < kHosts; ++h) {
    if (!in(hosts, h)) continue;
    const int answer = m.s.co.answer[range][h];
    if (answer == 0 && m.has(kAnswers)) return -1;
    if (answer == 0) continue;
    if (m.has(kLongest) ? answer > most : most < 0 || answer < most) best = h, most = answer;
  }
  return best;
}

// The replicas that go on; whose processes are all dead, those whose store is left.
int survivors(const Moves& m, const RangeView& view, int range, Plan* plan) {
  const int known = m.s.co.known;
  int left = view.replicas & ~known;
  for (int h = 0; h < kHosts; ++h) {
    if (in(view.replicas & known, h) && has_second_server(m, h)) plan->taken_over |= 1 << h;
  }
  left |= plan->taken_over;
  if (left != 0) return left;
  for (int h = 0; h < kHosts; ++h) {
    if (in(view.replicas, h) && reachable(m.s, h)) plan->taken_over |= 1 << h;
  }
  left = plan->taken_over;
  if (left != 0 || m.has(kNewest)) return left;
  for (int h = 0; h < kHosts; ++h) {
    if (reachable(m.s, h) && m.s.h[h].r[range].kind == kDropped) return 1 << h;
  }
  return 0;
}

Plan plan_range(const Moves& m, int range) {
  Plan plan{m.s.v[m.s.co.journaled].r[range]};
  const RangeView before = plan.view;
  const int known = m.s.co.known;
  const int joining = before.joining == 0 ? 0 : 1 << (before.joining - 1);
  if (((before.replicas | joining) & known) == 0) return plan;
  RangeView& next = plan.view;
  if ((joining & known) != 0) next.joining = 0;
  const bool members_lost = (before.replicas & known) != 0;
  if (members_lost || m.has(kJoinEpoch)) ++next.epoch;
  if (!members_lost) return plan;
  int left = survivors(m, before, range, &plan);
  if (!m.has(kNotPromoted) && next.joining != 0 && in(known, before.primary)) {
    left |= joining;
    next.primary = static_cast<Byte>(next.joining - 1);
    next.joining = 0;
  } else if (left != 0 && !in(left, before.primary)) {
    const int promoted = successor_of(m, range, candidates(m, left));
    plan.ready = promoted >= 0;
    if (plan.ready) next.primary = static_cast<Byte>(promoted);
  }
  next.replicas = static_cast<Byte>(left);
  return plan;
}

// The view's number is given, the view journaled; announcing it is a step of its own.
void journal(const Moves& m, State* t, const View& next) {
  const auto number = static_cast<Byte>(m.s.co.journaled + 1);
  if (number == kViews) return m.violate("the model has too few views");
  for (const RangeView& r : next.r) {
    if (r.epoch == kEpochs) return m.violate("the model has too few epochs");
  }
  if (t->co.announced >= number && std::memcmp(&t->v[number], &next, sizeof next) != 0)
    m.violate(fmt::format("I5: view {} is announced with two contents", number));
  t->v[number] = next;
  if (m.has(kJournal))
    t->co.journaled = number;
  else
    t->co.announced = number, t->co.pending = 1;
  std::memset(t->co.answer, 0, sizeof t->co.answer);
}

// Nothing that was decided is still to be journaled and announced.
bool idle(const Moves& m) {
  return m.has(kJournal) ? m.s.co.journaled == m.s.co.announced : m.s.co.pending == 0;
}

// A new process attaches to the store. It is a new member: no view before the next names it.
void attach(State* t, int h, int view) {
  Host& host = t->h[h];
  if (host.server != 0) return;
  host.server = host.fresh = 1;
  host.view = static_cast<Byte>(view);
}

// Every replica of the range is lost. False: it may still be served on the other side of a
// partition. Pushes that were acknowledged are gone; the user has chosen so, and is told.
bool restore(const Moves& m, State* t, int range, RangeView* next) {
  const Byte before = m.s.v[m.s.co.journaled].r[range].replicas;
  for (int h = 0; h < kHosts && m.has(kPartialWait); ++h) {
    if (in(before, h) && m.s.h[h].up != 0) return false;
  }
  for (int h = 0; h < kHosts; ++h) {
    if (!reachable(m.s, h) || m.s.h[h].server == 0) continue;
    t->h[h].r[range] = {};
    next->replicas = bit(h);
    next->primary = static_cast<Byte>(h);
    t->committed[range] = {};
    t->committed[range].epoch = next->epoch;
    for (auto& pushed : t->m.pushed) pushed[range] = 0;
    return true;
  }
  return false;
}

void decide(const Moves& m) {
  if (m.s.co.known == 0) return;
  State t = m.s;
  View next = m.s.v[m.s.co.journaled];
  for (int r = 0; r < m.o.ranges; ++r) {
    if (next.r[r].epoch == 0) continue;
    const Plan plan = plan_range(m, r);
    if (!plan.ready) return;
    next.r[r] = plan.view;
    for (int h = 0; h < kHosts; ++h) {
      if (in(plan.taken_over, h)) attach(&t, h, m.s.co.journaled);
    }
    if (plan.view.replicas != 0) continue;
    if (!m.o.partial)
      t.lost |= bit(r);
    else if (!restore(m, &t, r, &next.r[r]))
      return;
  }
  t.co.known = 0;
  journal(m, &t, next);
  m.emit(t, "the coordinator decides on view {} (without hosts {:b}){}", m.s.co.journaled + 1,
         m.s.co.known, t.lost != 0 ? ": a range is lost" : "");
}

void ask(const Moves& m, int range, int h) {
  const RangeView& view = m.s.v[m.s.co.journaled].r[range];
  if (!in(m.s.co.known & view.replicas, view.primary) || m.s.co.answer[range][h] != 0) return;
  Plan plan{view};
  const int asked = candidates(m, survivors(m, view, range, &plan));
  if (in(asked, view.primary) || !in(asked, h) || !reachable(m.s, h)) return;
  if (std::popcount(static_cast<unsigned>(asked)) < 2) return;
  State t = m.s;
  Replica& r = t.h[h].r[range];
  t.co.answer[range][h] = static_cast<Byte>(r.length + 1);
  if (m.has(kFence)) r.fence = static_cast<Byte>(view.epoch + 1);
  m.emit(t, "the coordinator asks host {}: range {} has LSN {}", h, range, r.length);
}

// What a coordinator that died had asked for is not in the journal, but in the stores.
void see_fence(const Moves& m, int range) {
  const RangeView& view = m.s.v[m.s.co.journaled].r[range];
  if (!m.has(kFenceSeen) || m.s.co.known != 0) return;
  for (int h = 0; h < kHosts; ++h) {
    if (!in(view.replicas, h) || !reachable(m.s, h) || m.s.h[h].r[range].fence <= view.epoch)
      continue;
    State t = m.s;
    View next = m.s.v[m.s.co.journaled];
    ++next.r[range].epoch;
    journal(m, &t, next);
    return m.emit(t, "the coordinator sees that host {} refuses epoch {} of range {}", h,
                  view.epoch, range);
  }
}

void announce(const Moves& m) {
  if (idle(m)) return;
  State t = m.s;
  t.co.pending = 0;
  if (m.has(kJournal))
    t.co.announced = t.co.journaled;
  else
    t.co.journaled = t.co.announced;
  m.emit(t, "the coordinator {} view {}", m.has(kJournal) ? "announces" : "journals",
         t.co.announced);
}

void add_replica(const Moves& m, int range) {
  const RangeView& view = m.s.v[m.s.co.journaled].r[range];
  if (m.s.joins == m.o.joins || view.joining != 0 || m.s.co.known != 0) return;
  for (int h = 0; h < kHosts; ++h) {
    const Host& host = m.s.h[h];
    if (in(view.replicas, h) || !reachable(m.s, h) || host.server == 0 || host.suspected != 0)
      continue;
    State t = m.s;
    ++t.joins;
    View next = m.s.v[m.s.co.journaled];
    next.r[range].joining = static_cast<Byte>(h + 1);
    if (m.has(kJoinEpoch)) ++next.r[range].epoch;
    journal(m, &t, next);
    m.emit(t, "the coordinator lets host {} join range {}", h, range);
  }
}

void admit(const Moves& m, int range) {
  const RangeView& view = m.s.v[m.s.co.journaled].r[range];
  if (view.joining == 0 || !in(m.s.m.caught[range], view.epoch)) return;
  State t = m.s;
  View next = m.s.v[m.s.co.journaled];
  RangeView& r = next.r[range];
  r.replicas |= bit(r.joining - 1);
  r.joining = 0;
  ++r.epoch;
  journal(m, &t, next);
  m.emit(t, "the coordinator gets Caught: host {} is a replica of range {}", view.joining - 1,
         range);
}

void remove_client(const Moves& m, int c) {
  const View& view = m.s.v[m.s.co.journaled];
  if (!in(view.clients, c) || m.s.c[c].life != kGone) return;
  State t = m.s;
  View next = view;
  next.clients &= static_cast<Byte>(~bit(c));
  journal(m, &t, next);
  m.emit(t, "the coordinator removes dead client {}", c);
}

void split_range(const Moves& m) {
  if (!m.o.split || m.s.split != 0 || m.s.co.known != 0) return;
  State t = m.s;
  View next = m.s.v[m.s.co.journaled];
  t.split = ++next.r[0].epoch;
  next.r[1] = next.r[0];
  journal(m, &t, next);
  m.emit(t, "the coordinator splits range 0");
}

void admit_client(const Moves& m, int c) {
  const View& view = m.s.v[m.s.co.journaled];
  if (m.s.c[c].life != kComing || in(view.clients, c)) return;
  State t = m.s;
  View next = view;
  next.clients |= bit(c);
  journal(m, &t, next);
  m.emit(t, "the coordinator admits client {}", c);
}

}  // namespace

void coordinator_moves(const Moves& m) {
  if (m.s.co.up == 0) {
    State t = m.s;
    t.co.up = 1;
    return m.emit(t, "the coordinator is restarted with its journal up to view {}",
                  m.s.co.journaled);
  }
  announce(m);
  for (int h = 0; h < kHosts; ++h) learn(m, h);
  if (!idle(m)) return;
  decide(m);
  for (int r = 0; r < m.o.ranges; ++r) {
    for (int h = 0; h < kHosts; ++h) ask(m, r, h);
    see_fence(m, r);
    add_replica(m, r);
    admit(m, r);
  }
  split_range(m);
  for (int c = 0; c < m.o.clients; ++c) {
    remove_client(m, c);
    admit_client(m, c);
  }
}

}  // namespace regroup::model::ps
