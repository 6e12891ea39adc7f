// Servers: a primary appends pushes to its log and replicates them, backups store them, and what
// all replicas of the epoch have is committed, applied and acknowledged.
#include <algorithm>
#include <bit>

#include "tests/model/ps_moves.h"

namespace regroup::model::ps {
namespace {

// The next entry of this primary may be applied.
bool committable(const Moves& m, const State& t, int h, int range) {
  const Replica& r = t.h[h].r[range];
  if (r.applied == r.length) return false;
  if (!m.has(kStored)) return true;
  const int waited = waited_for(m.o, t, h, range);
  const int next = r.applied + 1;
  int stored = 0;
  for (int b = 0; b < kHosts; ++b) {
    if (t.h[h].stored[range][b] >= next) stored |= 1 << b;
  }
  if (m.has(kNotCounted)) return (waited & ~stored) == 0;
  const int backups = view_of(t, h, range).replicas & ~(1 << h);
  return std::popcount(static_cast<unsigned>(stored)) >=
         std::popcount(static_cast<unsigned>(backups));
}

void acknowledge(State* t, int range, Byte entry) {
  if (entry == kHole) return;
  Byte& pushed = t->m.pushed[client_of(entry)][range];
  pushed = std::max(pushed, static_cast<Byte>(number_of(entry)));
}

void publish(State* t, int h, int range) {
  Replica& r = t->h[h].r[range];
  r.applied = r.rows;
  acknowledge(t, range, r.log[r.applied - 1]);
  t->m.replicate[range][r.epoch].committed = r.applied;
}

void take_again(const Moves& m, int c, int n, int range, int h) {
  const Replica& r = m.s.h[h].r[range];
  const int number = m.has(kDuplicate) ? committed_number(r, c) : n;
  if (number < n || m.s.m.pushed[c][range] >= number) return;
  State t = m.s;
  t.m.pushed[c][range] = static_cast<Byte>(number);
  m.emit(t, "host {} acknowledges push {} of client {} on range {} again", h, n, c, range);
}

void take_push(const Moves& m, int c, int n, int range, int h) {
  const Replica& r = m.s.h[h].r[range];
  if (!is_primary(m.s, h, range) || r.fence > r.epoch || !client_reaches(m.s, c, h)) return;
  const Byte epochs = m.s.m.push[c][n - 1][range];
  if (!in(epochs, r.epoch)) return;
  if (m.has(kRemoved) && !in(m.s.v[m.s.h[h].view].clients, c)) return;
  const bool renumbered = !m.has(kNumber) && (epochs & ((1 << r.epoch) - 1)) != 0;
  if (n <= r.last[c] && !renumbered) return take_again(m, c, n, range, h);
  if (renumbered && r.length > 0 && r.log[r.length - 1] == entry_of(c, n)) return;
  if (m.previous(c, n, range, r.epoch) > r.last[c] && m.has(kPrevious)) return;
  if (r.length == kEntries) return;
  State t = m.s;
  Replica& to = t.h[h].r[range];
  to.log[to.length++] = entry_of(c, n);
  to.last[c] = std::max(to.last[c], static_cast<Byte>(n));
  Entries& sent = t.m.replicate[range][to.epoch];
  std::copy(to.log, to.log + to.length, sent.log);
  sent.length = to.length;
  advance_primary(m, &t, h, range);
  m.emit(t, "host {} appends push {} of client {} to range {} as LSN {}", h, n, c, range,
         to.length);
}

// A backup applies what it stores at once if nobody else must store it.
void apply_at_once(const Moves& m, State* t, int h, int range) {
  const RangeView& view = view_of(*t, h, range);
  const bool only = std::popcount(view.replicas) == 2 && view.joining == 0;
  const bool apply = only || !m.has(kAtOnce);
  if (apply && in(view.replicas, h)) apply_upto(m, t, h, range, t->h[h].r[range].length);
}

void take_replicate(const Moves& m, int range, int epoch, int h) {
  const Host& host = m.s.h[h];
  const Replica& r = host.r[range];
  const Entries& sent = m.s.m.replicate[range][epoch];
  if (sent.length == 0 || host.up == 0 || host.server == 0 || host.fresh != 0) return;
  const RangeView& view = view_of(m.s, h, range);
  if (view.epoch != r.epoch || view.primary == h) return;
  if (r.kind != kMember && r.kind != kJoining) return;
  if (r.kind == kJoining && r.copied == 0) return;
  if (epoch > r.epoch || (m.has(kLower) && epoch < std::max(r.epoch, r.fence))) return;
  if (epoch == r.epoch && !connected(m.s, h, view.primary)) return;
  State t = m.s;
  Replica& to = t.h[h].r[range];
  Byte& stored = t.m.stored[range][epoch][h];
  const Byte have = std::min(to.length, sent.length);
  if (stored < have) {
    stored = have;
    apply_at_once(m, &t, h, range);
    m.emit(t, "host {} has entries up to LSN {} of range {} in epoch {}: Stored", h, have, range,
           epoch);
  } else if (to.length < sent.length && to.length < kEntries) {
    to.log[to.length] = sent.log[to.length];
    ++to.length;
    count_last(&t, h, range);
    stored = to.length;
    apply_at_once(m, &t, h, range);
    say_caught(m, &t, h, range);
    m.emit(t, "host {} stores LSN {} of range {} in epoch {}", h, to.length, range, epoch);
  }
}

// The committed LSN travels with a later Replicate.
void learn_committed(const Moves& m, int range, int h) {
  const Replica& r = m.s.h[h].r[range];
  const bool joining = r.kind == kJoining && r.copied != 0;
  if ((!serves(m.s, h, range) && !joining) || m.s.h[h].up == 0 || m.s.h[h].server == 0 ||
      m.s.h[h].fresh != 0 || view_of(m.s, h, range).primary == h)
    return;
  const Byte committed =
      std::min(m.s.m.replicate[range][r.epoch].committed, m.s.m.stored[range][r.epoch][h]);
  if (committed <= r.applied || !connected(m.s, h, view_of(m.s, h, range).primary)) return;
  State t = m.s;
  apply_upto(m, &t, h, range, committed);
  m.emit(t, "host {} applies range {} up to LSN {}", h, range, committed);
}

void take_stored(const Moves& m, int range, int h, int from) {
  if (!is_primary(m.s, h, range) || !connected(m.s, h, from) || m.s.h[from].up == 0) return;
  const Byte stored = m.s.m.stored[range][m.s.h[h].r[range].epoch][from];
  if (m.s.h[h].stored[range][from] >= stored) return;
  State t = m.s;
  t.h[h].stored[range][from] = stored;
  advance_primary(m, &t, h, range);
  m.emit(t, "host {} gets Stored {} of range {} from host {}", h, stored, range, from);
}

// An entry is applied in two steps: a process may die between them.
void apply_in_steps(const Moves& m, int range, int h) {
  if (!m.o.rows || !is_primary(m.s, h, range)) return;
  const Replica& r = m.s.h[h].r[range];
  State t = m.s;
  if (r.rows > r.applied) {
    publish(&t, h, range);
    m.emit(t, "host {} publishes LSN {} of range {}", h, r.rows, range);
  } else if (committable(m, m.s, h, range)) {
    Replica& to = t.h[h].r[range];
    commit(m, &t, range, to.rows + 1, to.log[to.rows], to.epoch);
    ++to.rows;
    m.emit(t, "host {} writes the rows of LSN {} of range {}", h, to.rows, range);
  }
}

}  // namespace

int committed_number(const Replica& r, int client) {
  int number = 0;
  for (int i = 0; i < r.applied; ++i) {
    if (r.log[i] != kHole && client_of(r.log[i]) == client)
      number = std::max(number, number_of(r.log[i]));
  }
  return number;
}

void commit(const Moves& m, State* t, int range, int lsn, Byte entry, int epoch) {
  Observer& log = t->committed[range];
  if (entry == kHole) return;
  if (lsn <= log.length) {
    if (log.log[lsn - 1] != entry)
      m.violate(fmt::format("I4: LSN {} of range {} was committed with other content", lsn, range));
    return;
  }
  if (lsn != log.length + 1) return m.violate("I4: an entry before the last one is not committed");
  if (std::find(log.log, log.log + log.length, entry) != log.log + log.length)
    m.violate(fmt::format("I2: push {} of client {} is applied twice to range {}", number_of(entry),
                          client_of(entry), range));
  if (epoch < log.epoch)
    m.violate(
        fmt::format("I3: epoch {} commits on range {} after epoch {}", epoch, range, log.epoch));
  log.log[log.length++] = entry;
  log.epoch = static_cast<Byte>(epoch);
}

void apply_upto(const Moves& m, State* t, int host, int range, int lsn) {
  Replica& r = t->h[host].r[range];
  while (r.applied < lsn) {
    commit(m, t, range, r.applied + 1, r.log[r.applied], r.epoch);
    r.rows = ++r.applied;
  }
}

void advance_primary(const Moves& m, State* t, int host, int range) {
  while (!m.o.rows && committable(m, *t, host, range)) {
    Replica& r = t->h[host].r[range];
    commit(m, t, range, r.applied + 1, r.log[r.applied], r.epoch);
    r.rows = static_cast<Byte>(r.applied + 1);
    publish(t, host, range);
  }
}

void count_last(State* t, int host, int range) {
  Replica& r = t->h[host].r[range];
  std::fill(r.last, r.last + kClients, Byte{0});
  for (int i = 0; i < r.length; ++i) {
    if (r.log[i] == kHole) continue;
    Byte& last = r.last[client_of(r.log[i])];
    last = std::max(last, static_cast<Byte>(number_of(r.log[i])));
  }
  const Byte clients = t->v[t->h[host].view].clients;
  for (int c = 0; c < kClients; ++c) {
    if (!in(clients, c)) r.last[c] = 0;
  }
}

void server_moves(const Moves& m) {
  for (int r = 0; r < m.o.ranges; ++r) {
    for (int h = 0; h < kHosts; ++h) {
      for (int c = 0; c < m.o.clients; ++c) {
        for (int n = 1; n <= m.o.pushes; ++n) take_push(m, c, n, r, h);
      }
      for (int e = 1; e < kEpochs; ++e) take_replicate(m, r, e, h);
      learn_committed(m, r, h);
      for (int b = 0; b < kHosts; ++b) take_stored(m, r, h, b);
      apply_in_steps(m, r, h);
    }
  }
}

}  // namespace regroup::model::ps
