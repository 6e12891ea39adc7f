// What may go wrong. Kinds of faults: k a server process killed (its store stays), h a host lost
// with its stores, m the coordinator takes a living server for lost, or moves its ranges away,
// z the same while the process is about to write to the log, c the coordinator killed, p host 0
// cut off with client 1, q hosts 0 and 1 cut off, d a client killed, r a living client removed.
#include <algorithm>
#include <cstring>

#include "tests/model/ps_moves.h"

namespace regroup::model::ps {
namespace {

void stop_server(State* t, int h) {
  t->h[h].server = 0;
  t->h[h].fresh = 0;
}

void kill_server(const Moves& m, int h) {
  if (m.s.h[h].up == 0 || m.s.h[h].server == 0) return;
  State t = m.s;
  ++t.faults;
  stop_server(&t, h);
  m.emit(t, "FAULT the server of host {} is killed", h);
}

void lose_host(const Moves& m, int h) {
  if (m.s.h[h].up == 0) return;
  State t = m.s;
  ++t.faults;
  t.h[h].up = 0;
  m.emit(t, "FAULT host {} is lost with its stores", h);
}

void suspect(const Moves& m, int h) {
  const View& view = m.s.v[m.s.co.journaled];
  if (m.s.h[h].up == 0 || m.s.co.up == 0 || in(m.s.co.known, h)) return;
  int named = 0;
  for (const RangeView& r : view.r) named |= r.replicas;
  if (!in(named, h)) return;
  State t = m.s;
  ++t.faults;
  t.co.known |= bit(h);
  m.emit(t, "FAULT the coordinator takes host {} for lost, or moves its ranges away", h);
}

// The owner of the mutex has begun to append a push, and the agent takes it for dead.
void suspect_owner(const Moves& m, int h, int range) {
  if (!is_primary(m.s, h, range) || !m.o.two_servers) return;
  const Replica& r = m.s.h[h].r[range];
  for (int c = 0; c < m.o.clients; ++c) {
    const int n = r.last[c] + 1;
    if (n > m.o.pushes || !in(m.s.m.push[c][n - 1][range], r.epoch)) continue;
    State t = m.s;
    ++t.faults;
    stop_server(&t, h);
    Host& host = t.h[h];
    host.suspected = 1;
    host.late_at = static_cast<Byte>(r.length + 1);
    host.late_entry = entry_of(c, n);
    host.late_range = static_cast<Byte>(range);
    m.emit(t, "FAULT the server of host {}, which appends push {} of client {}, counts as dead", h,
           n, c);
  }
}

void kill_coordinator(const Moves& m) {
  if (m.s.co.up == 0) return;
  State t = m.s;
  ++t.faults;
  t.co.up = t.co.known = t.co.pending = 0;
  std::memset(t.co.answer, 0, sizeof t.co.answer);
  m.emit(t, "FAULT the coordinator is killed");
}

void cut(const Moves& m, int hosts) {
  State t = m.s;
  ++t.faults;
  for (int h = 0; h < kHosts; ++h) {
    if (!in(hosts, h)) continue;
    if (t.h[h].up == 0 || t.h[h].cut != 0) return;
    t.h[h].cut = 1;
  }
  m.emit(t, "FAULT hosts {:b} and client 1 are cut off", hosts);
}

void lose_client(const Moves& m, int c, bool dead) {
  const View& view = m.s.v[m.s.co.journaled];
  if (m.s.c[c].life != kLiving) return;
  State t = m.s;
  if (!dead) {
    if (m.s.co.up == 0 || m.s.co.journaled != m.s.co.announced || !in(view.clients, c)) return;
    const int number = t.co.journaled + 1;
    t.v[number] = view;
    t.v[number].clients &= static_cast<Byte>(~bit(c));
    t.co.journaled = static_cast<Byte>(number);
  } else {
    t.c[c].life = kGone;
  }
  ++t.faults;
  m.emit(t, "FAULT client {} is {}", c, dead ? "killed" : "removed");
}

void fault(const Moves& m, char kind) {
  for (int h = 0; h < kHosts; ++h) {
    if (kind == 'k') kill_server(m, h);
    if (kind == 'h') lose_host(m, h);
    if (kind == 'm') suspect(m, h);
    for (int r = 0; kind == 'z' && r < m.o.ranges; ++r) suspect_owner(m, h, r);
  }
  if (kind == 'c') kill_coordinator(m);
  if (kind == 'p') cut(m, 1);
  if (kind == 'q') cut(m, 3);
  for (int c = 0; c < m.o.clients; ++c) {
    if (kind == 'd' || kind == 'r') lose_client(m, c, kind == 'd');
  }
}

// A host whose agent hears no coordinator ends its members, client 1 with them.
void end_cut_side(const Moves& m) {
  State t = m.s;
  bool any = false;
  for (Host& host : t.h) {
    if (host.up == 0 || host.cut == 0) continue;
    any = true;
    host.up = 0;
  }
  if (!any) return;
  if (t.c[1].life == kLiving) t.c[1].life = kGone;
  m.emit(t, "the side that was cut off ends");
}

void heal(const Moves& m) {
  State t = m.s;
  bool any = false;
  for (Host& host : t.h) any |= host.cut != 0, host.cut = 0;
  if (any) m.emit(t, "the partition ends");
}

// The owner that counted as dead ends, with what it was about to write, or without.
void end_owner(const Moves& m, int h) {
  const Host& host = m.s.h[h];
  if (host.up == 0 || host.suspected == 0) return;
  State t = m.s;
  t.h[h].suspected = 0;
  m.emit(t, "the owner on host {} dies", h);
  State late = t;
  Replica& r = late.h[h].r[host.late_range];
  r.log[host.late_at - 1] = host.late_entry;
  r.length = std::max(r.length, host.late_at);
  Byte& last = r.last[client_of(host.late_entry)];
  last = std::max(last, static_cast<Byte>(number_of(host.late_entry)));
  m.emit(late, "the owner on host {} writes LSN {} and dies", h, host.late_at);
}

// A host whose server died, and which no view names, has a new one.
void respawn(const Moves& m, int h) {
  const Host& host = m.s.h[h];
  if (m.o.joins == 0 || host.up == 0 || host.server != 0 || host.suspected != 0 || m.s.co.up == 0)
    return;
  for (const RangeView& r : m.s.v[m.s.co.journaled].r) {
    if (in(r.replicas, h) || r.joining == h + 1) return;
  }
  State t = m.s;
  t.h[h].server = t.h[h].fresh = 1;
  t.h[h].view = m.s.co.journaled;
  m.emit(t, "host {} has a new server", h);
}

}  // namespace

void fault_moves(const Moves& m) {
  if (m.s.faults >= m.o.faults) return;
  for (const char kind : m.o.kinds) fault(m, kind);
}

void aftermath_moves(const Moves& m) {
  end_cut_side(m);
  if (m.o.heals) heal(m);
  for (int h = 0; h < kHosts; ++h) {
    end_owner(m, h);
    respawn(m, h);
  }
}

}  // namespace regroup::model::ps
