// Clients: they send each push again to the primary of a new epoch under its number, and forget it
// once it is acknowledged. A client reads from any replica and remembers what it saw.
#include <algorithm>

#include "tests/model/ps_moves.h"

namespace regroup::model::ps {
namespace {

void take_view(const Moves& m, int c, int v) {
  State t = m.s;
  Client& client = t.c[c];
  client.view = static_cast<Byte>(v);
  if (!in(t.v[v].clients, c)) {
    client.life = kGone;
    return m.emit(t, "client {} learns from view {} that it was removed", c, v);
  }
  if (m.s.v[m.s.c[c].view].r[1].epoch == 0 && m.o.split) client.got[1] = client.got[0];
  for (int r = 0; r < m.o.ranges; ++r) {
    if (t.v[v].r[r].epoch == 0) continue;
    const Byte epoch = t.v[v].r[r].epoch;
    const int sent = m.o.clocks ? client.clock : m.o.pushes;
    if (m.has(kClockAgain)) t.m.clock[c][r][epoch] = client.clock;
    for (int n = std::max(client.got[r], client.start) + 1; n <= sent; ++n) {
      if (m.touches(c, n, r, epoch)) t.m.push[c][n - 1][r] |= bit(epoch);
    }
  }
  m.emit(t, "client {} adopts view {}, sends again what is not acknowledged", c, v);
}

void take_pushed(const Moves& m, int c, int r) {
  const bool whole = m.o.split && m.s.v[m.s.c[c].view].r[1].epoch == 0 && m.s.m.whole[c] != 0;
  const Byte number = whole && m.has(kPushedEpoch) ? m.s.m.whole[c] - 1 : m.s.m.pushed[c][r];
  if (m.s.c[c].got[r] >= number) return;
  State t = m.s;
  t.c[c].got[r] = number;
  if (m.o.reads) {  // Pushed carries the LSN
    const Observer& log = t.committed[r];
    const auto* at = std::find(log.log, log.log + log.length, entry_of(c, number));
    t.c[c].seen[r] = std::max(t.c[c].seen[r], static_cast<Byte>(at - log.log + 1));
  }
  m.emit(t, "client {} gets Pushed {} of range {}", c, number, r);
}

void read(const Moves& m, int c, int r, int h) {
  if (!serves(m.s, h, r) || !client_reaches(m.s, c, h)) return;
  const Replica& replica = m.s.h[h].r[r];
  const Byte shown = m.has(kShown) ? replica.applied : replica.length;
  const Byte seen = m.s.c[c].seen[r];
  if (shown < seen && m.has(kToken)) return;
  if (shown < seen)
    m.violate(fmt::format("I7: client {} has seen LSN {} of range {}, host {} shows LSN {}", c,
                          seen, r, h, shown));
  if (shown == seen) return;
  State t = m.s;
  t.c[c].seen[r] = shown;
  m.emit(t, "client {} reads range {} on host {}: LSN {}", c, r, h, shown);
}

}  // namespace

void client_moves(const Moves& m) {
  for (int c = 0; c < m.o.clients; ++c) {
    const Client& client = m.s.c[c];
    if (client.life != kLiving) continue;
    for (int v = client.view + 1; v <= m.s.co.announced; ++v) {
      if (client_reaches(m.s, c, kHosts - 1) || m.s.h[kHosts - 1].up == 0) take_view(m, c, v);
    }
    for (int r = 0; r < m.o.ranges; ++r) {
      take_pushed(m, c, r);
      for (int h = 0; m.o.reads && h < kHosts; ++h) read(m, c, r, h);
    }
  }
}

}  // namespace regroup::model::ps
