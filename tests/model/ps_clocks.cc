// Clocks of ssp: a client pulls, pushes and says its clock. A pull at clock k waits until the clock
// of every client in the view counts k - bound here (I6).
#include <algorithm>

#include "tests/model/ps_moves.h"

namespace regroup::model::ps {
namespace {

// The client's clock as it counts in this range.
int counted(const Moves& m, int h, int range, int c) {
  const int said = m.s.h[h].clock[range][c];
  if (!m.has(kClockPushes)) return said;
  const int committed = std::max<int>(committed_number(m.s.h[h].r[range], c), m.s.c[c].start);
  int clock = said;
  while (clock > 0 && m.previous(c, clock + 1, range, m.s.h[h].r[range].epoch) > committed) --clock;
  return clock;
}

bool waits_for(const Moves& m, int h, int range, int c, int clock) {
  const bool in_view = in(m.s.v[m.s.h[h].view].clients, c);
  const bool was_there = !m.has(kClockGone) && c < m.o.clients && !m.o.client_joins;
  return (in_view || was_there) && counted(m, h, range, c) < clock - m.o.bound;
}

bool living(const Moves& m, int c) {
  return m.s.c[c].life == kLiving && in(m.s.v[m.s.co.journaled].clients, c);
}

// I6: all updates of clocks below clock - bound of every living client.
void check_pull(const Moves& m, int h, int range, int c, int clock) {
  const Replica& r = m.s.h[h].r[range];
  const Byte* end = r.log + r.applied;
  for (int d = 0; d < m.o.clients; ++d) {
    if (!living(m, d)) continue;
    const int upto = d == c ? clock : clock - m.o.bound;
    for (int n = m.s.c[d].start + 1; n <= upto; ++n) {
      if (!m.touches(d, n, range, r.epoch) || std::find(r.log, end, entry_of(d, n)) != end)
        continue;
      m.violate(fmt::format("{}: client {} pulls range {} at clock {} without push {} of client {}",
                            d == c ? "I7" : "I6", c, range, clock, n, d));
    }
  }
}

void pull(const Moves& m, int c, int range) {
  const Client& client = m.s.c[c];
  const RangeView& view = m.s.v[client.view].r[range];
  const int h = view.primary;
  if (in(client.pulled, range) || client.clock == m.o.pushes) return;
  if (!is_primary(m.s, h, range) || !client_reaches(m.s, c, h)) return;
  const Replica& r = m.s.h[h].r[range];
  if (r.epoch != view.epoch || !in(m.s.v[m.s.h[h].view].clients, c)) return;
  const int own = std::max<int>(committed_number(r, c), client.start);
  if (m.has(kOwnPushes) && m.previous(c, client.clock + 1, range, r.epoch) > own) return;
  for (int d = 0; d < m.o.clients; ++d) {
    if (d != c && waits_for(m, h, range, d, client.clock)) return;
  }
  check_pull(m, h, range, c, client.clock);
  State t = m.s;
  t.c[c].pulled |= bit(range);
  m.emit(t, "client {} pulls range {} at clock {}", c, range, client.clock);
}

void push(const Moves& m, int c) {
  const Client& client = m.s.c[c];
  if (client.clock == m.o.pushes || client.pulled != (1 << m.o.ranges) - 1) return;
  State t = m.s;
  t.c[c].pulled = 0;
  const int n = ++t.c[c].clock;
  for (int r = 0; r < m.o.ranges; ++r) {
    const Byte epoch = m.s.v[client.view].r[r].epoch;
    t.m.clock[c][r][epoch] = static_cast<Byte>(n);
    if (m.touches(c, n, r, epoch)) t.m.push[c][n - 1][r] |= bit(epoch);
  }
  m.emit(t, "client {} pushes {} and says clock {}", c, n, n);
}

void hear(const Moves& m, int h, int range, int c) {
  if (!is_primary(m.s, h, range) || !client_reaches(m.s, c, h)) return;
  if (!in(m.s.v[m.s.h[h].view].clients, c)) return;
  const Byte said = m.s.m.clock[c][range][m.s.h[h].r[range].epoch];
  if (m.s.h[h].clock[range][c] >= said) return;
  State t = m.s;
  t.h[h].clock[range][c] = said;
  m.emit(t, "host {} hears clock {} of client {} for range {}", h, said, c, range);
}

// A joining client starts at the highest clock that a server knows.
void start(const Moves& m, int c) {
  if (m.s.c[c].life != kComing || !in(m.s.v[m.s.co.announced].clients, c)) return;
  if (m.s.co.up == 0 || m.s.co.known != 0 || m.s.co.announced != m.s.co.journaled) return;
  Byte clock = 0;
  for (int h = 0; h < kHosts; ++h) {
    for (int r = 0; r < m.o.ranges; ++r) {
      const bool named = in(m.s.v[m.s.co.journaled].r[r].replicas, h);
      if (named && m.has(kClockKnown) && m.s.h[h].view != m.s.co.announced) return;
      if (!is_primary(m.s, h, r)) continue;
      for (const Byte known : m.s.h[h].clock[r]) clock = std::max(clock, known);
    }
  }
  State t = m.s;
  Client& client = t.c[c];
  client.life = kLiving;
  client.view = m.s.co.announced;
  client.clock = client.start = clock;
  for (int r = 0; r < m.o.ranges; ++r) {
    client.got[r] = clock;
    t.m.clock[c][r][t.v[client.view].r[r].epoch] = clock;
  }
  m.emit(t, "client {} starts at clock {}", c, clock);
}

}  // namespace

void clock_moves(const Moves& m) {
  for (int c = 0; c < m.o.clients; ++c) {
    start(m, c);
    if (m.s.c[c].life == kLiving) push(m, c);
    for (int r = 0; r < m.o.ranges; ++r) {
      if (m.s.c[c].life == kLiving) pull(m, c, r);
      for (int h = 0; h < kHosts; ++h) hear(m, h, r, c);
    }
  }
}

}  // namespace regroup::model::ps
