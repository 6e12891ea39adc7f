// Servers adopt views: a replica enters an epoch, leaves the replica set, or begins to join.
#include <algorithm>

#include "tests/model/ps_moves.h"

namespace regroup::model::ps {
namespace {

// I4: the log of a new epoch contains all that older ones committed. A server may also adopt an
// epoch late, after a newer one has committed more.
void check_log(const Moves& m, const State& t, int h, int range) {
  const Replica& r = t.h[h].r[range];
  const Observer& committed = t.committed[range];
  if (r.epoch < committed.epoch) return;
  if (r.length < committed.length ||
      !std::equal(committed.log, committed.log + committed.length, r.log))
    m.violate(fmt::format("I4: the log of range {} in epoch {} on host {} lacks what is committed",
                          range, r.epoch, h));
}

void lead(const Moves& m, State* t, int h, int range, bool led) {
  Replica& r = t->h[h].r[range];
  if (!led && !m.has(kLastPush)) std::fill(r.last, r.last + kClients, Byte{0});
  check_log(m, *t, h, range);
  if (r.rows > r.applied && !m.has(kRowVersion))
    m.violate(fmt::format("I2: entry {} of range {} is applied to its rows twice", r.rows, range));
  Entries& sent = t->m.replicate[range][r.epoch];
  std::copy(r.log, r.log + r.length, sent.log);
  sent.length = r.length;
  sent.committed = r.applied;
  if (!led) std::fill(t->h[h].clock[range], t->h[h].clock[range] + kClients, Byte{0});
  if (m.o.reads) t->h[h].led[range] = r.length;
  advance_primary(m, t, h, range);
}

// Entries that may not be committed are gone; they may have been replaced while it was away.
void begin_to_join(const Moves& m, State* t, int h, int range) {
  Replica& r = t->h[h].r[range];
  r.kind = kJoining;
  r.copied = 0;
  if (!m.has(kTruncate)) return;
  r.length = r.rows = r.applied;
  count_last(t, h, range);
}

void enter(const Moves& m, State* t, int h, int range, const RangeView& before) {
  const RangeView& view = view_of(*t, h, range);
  Host& host = t->h[h];
  Replica& r = host.r[range];
  const bool joining = view.joining == h + 1;
  const bool joins = joining && (r.kind != kJoining || before.joining != view.joining);
  if (view.joining != before.joining) host.copy_done[range] = 0;
  if (view.epoch == r.epoch && !joins && (in(view.replicas, h) || joining || r.kind == kNone))
    return;
  const bool led = r.kind == kMember && before.primary == h;
  r.epoch = view.epoch;
  std::fill(host.stored[range], host.stored[range] + kHosts, Byte{0});
  host.copy_done[range] = host.led[range] = 0;
  if (joining) return begin_to_join(m, t, h, range);
  if (!in(view.replicas, h)) {
    r.kind = r.kind == kNone ? kNone : kDropped;
    return;
  }
  r.kind = kMember;
  if (view.primary == h) lead(m, t, h, range, led);
}

// Both halves have the log, and with it LSN and last push numbers; the keys are divided. The
// primary sends both logs again in the new epoch, so the others need not have split at one LSN.
void divide(const Moves& m, State* t, int h) {
  Host& host = t->h[h];
  if (host.r[1].kind != kNone || host.r[0].kind != kMember) return;
  host.r[1] = host.r[0];
  if (!m.has(kSplitLast)) std::fill(host.r[1].last, host.r[1].last + kClients, Byte{0});
  const Byte epoch = std::max(host.r[1].epoch, t->committed[1].epoch);  // of range 0, long ago
  for (int i = 0; i < host.r[1].applied; ++i) commit(m, t, 1, i + 1, host.r[1].log[i], epoch);
}

// Acknowledgements of the first primary that knows of the split are those of a half.
void split(const Moves& m, State* t, int h) {
  const RangeView& half = view_of(*t, h, 1);
  if (!m.o.split || half.epoch == 0) return;
  divide(m, t, h);
  for (int c = 0; half.primary == h && c < kClients; ++c) {
    if (t->m.whole[c] != 0) continue;
    t->m.whole[c] = static_cast<Byte>(t->m.pushed[c][0] + 1);
    t->m.pushed[c][1] = std::max<Byte>(t->m.whole[c] - 1, t->m.pushed[c][1]);
  }
}

void adopt(const Moves& m, int h, int v) {
  State t = m.s;
  Host& host = t.h[h];
  const View before = t.v[host.view];
  host.view = static_cast<Byte>(v);
  host.fresh = 0;
  split(m, &t, h);
  for (int r = 0; r < m.o.ranges; ++r) {
    Byte* last = host.r[r].last;
    for (int c = 0; c < kClients; ++c) {
      if (!in(t.v[v].clients, c)) last[c] = 0;
    }
    enter(m, &t, h, r, before.r[r]);
  }
  m.emit(t, "host {} adopts view {}", h, v);
}

}  // namespace

void view_moves(const Moves& m) {
  for (int h = 0; h < kHosts; ++h) {
    const Host& host = m.s.h[h];
    if (host.up == 0 || host.server == 0 || host.cut != 0) continue;
    if (host.suspected != 0 && m.has(kMutex)) continue;
    for (int v = host.view + 1; v <= m.s.co.announced; ++v) adopt(m, h, v);
  }
}

}  // namespace regroup::model::ps
