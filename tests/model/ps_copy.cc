// A new replica while the range is served: the primary sends the rows as they are, round by round,
// then CopyDone with the LSN at which Replicate begins; Caught tells the coordinator.
#include <algorithm>

#include "tests/model/ps_moves.h"

namespace regroup::model::ps {
namespace {

void send_rows(const Moves& m, int range, int h) {
  if (!is_primary(m.s, h, range) || view_of(m.s, h, range).joining == 0) return;
  const Replica& r = m.s.h[h].r[range];
  const Copy& copy = m.s.m.copy[range][r.epoch];
  if (m.s.h[h].copy_done[range] != 0) return;
  if (copy.sent == 0 || copy.upto < r.applied) {
    State t = m.s;
    t.m.copy[range][r.epoch] = {1, r.applied, 0, 0, 0};
    m.emit(t, "host {} sends the rows of range {} as of LSN {}", h, range, r.applied);
    return;
  }
  State t = m.s;
  const Byte start = static_cast<Byte>((m.has(kCopyGap) ? r.applied : r.length) + 1);
  t.m.copy[range][r.epoch] = {1, r.applied, 1, start, r.length};
  t.h[h].copy_done[range] = 1;
  advance_primary(m, &t, h, range);
  m.emit(t, "host {} ends the copy of range {} (CopyDone), Replicate begins at LSN {}", h, range,
         start);
}

void take_rows(const Moves& m, int range, int h) {
  const Host& host = m.s.h[h];
  const Replica& r = host.r[range];
  const Copy& copy = m.s.m.copy[range][r.epoch];
  if (host.up == 0 || host.server == 0 || host.fresh != 0 || r.kind != kJoining) return;
  const RangeView& view = view_of(m.s, h, range);
  if (copy.sent == 0 || r.fence > r.epoch || !connected(m.s, h, view.primary)) return;
  if (r.applied >= copy.upto && (copy.done == 0 || r.copied != 0)) return;
  State t = m.s;
  Replica& to = t.h[h].r[range];
  const Byte before = to.length;
  const Observer& rows = t.committed[range];
  for (; to.length < copy.upto; ++to.length) to.log[to.length] = rows.log[to.length];
  apply_upto(m, &t, h, range, copy.upto);
  if (copy.done != 0) {
    for (; to.length + 1 < copy.start; ++to.length) to.log[to.length] = kHole;
    to.copied = 1;
    say_caught(m, &t, h, range);
  }
  count_last(&t, h, range);
  if (!m.has(kCopyLast) && before < to.length) std::fill(to.last, to.last + kClients, Byte{0});
  m.emit(t, "host {} takes the rows of range {} up to LSN {}{}", h, range, copy.upto,
         copy.done != 0 ? ", and CopyDone" : "");
}

}  // namespace

// A backup may have applied an entry at once before the newcomer was named, and the primary may not
// know: so the newcomer first has all that was in the log.
void say_caught(const Moves& m, State* t, int host, int range) {
  const Replica& r = t->h[host].r[range];
  if (r.kind != kJoining || r.copied == 0) return;
  if (r.length >= t->m.copy[range][r.epoch].end || !m.has(kCaughtAll))
    t->m.caught[range] |= bit(r.epoch);
}

void copy_moves(const Moves& m) {
  for (int r = 0; m.o.joins > 0 && r < m.o.ranges; ++r) {
    for (int h = 0; h < kHosts; ++h) {
      send_rows(m, r, h);
      take_rows(m, r, h);
    }
  }
}

}  // namespace regroup::model::ps
