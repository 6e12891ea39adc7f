// Readings of a State, its canonical form, its first value, what must hold in each.
#include <algorithm>
#include <bit>
#include <cstring>

#include "tests/model/ps_moves.h"

namespace regroup::model::ps {
namespace {

template <class T>
void clear(T* value) {
  std::memset(static_cast<void*>(value), 0, sizeof *value);
}

bool contains(const Replica& r, Byte entry) {
  return std::find(r.log, r.log + r.length, entry) != r.log + r.length;
}

void canonical_hosts(State* t) {
  for (Host& host : t->h) {
    if (host.up == 0) {
      clear(&host);
      continue;
    }
    if (host.server == 0 || host.fresh != 0)
      clear(&host.stored), clear(&host.led), clear(&host.clock), clear(&host.copy_done);
    if (host.suspected == 0) host.late_at = host.late_entry = host.late_range = 0;
    for (Replica& r : host.r) {
      if (r.fence <= r.epoch) r.fence = 0;
      if (r.kind != kJoining) r.copied = 0;
      std::fill(r.log + r.length, r.log + kEntries, Byte{0});
    }
  }
}

// The oldest view in which something may still happen.
int oldest_view(const State& s) {
  int oldest = std::min(s.co.journaled, s.co.announced);
  for (const Host& host : s.h) {
    if (host.up != 0 && host.server != 0) oldest = std::min<int>(oldest, host.view);
  }
  for (const Client& client : s.c) {
    if (client.life == kLiving) oldest = std::min<int>(oldest, client.view);
  }
  return oldest;
}

// Bits of epochs of which messages are still taken.
int usable_epochs(const State& s, int range) {
  int oldest = kEpochs;
  for (int v = oldest_view(s); v < kViews; ++v) {
    if (const Byte epoch = s.v[v].r[range].epoch; epoch != 0) oldest = std::min<int>(oldest, epoch);
  }
  return ~((1 << oldest) - 1);
}

void canonical_messages(const Options& o, State* t) {
  for (int r = 0; r < kRanges; ++r) {
    const int usable = usable_epochs(*t, r);
    for (auto& client : t->m.push) {
      for (auto& push : client) push[r] &= static_cast<Byte>(usable);
    }
    t->m.caught[r] &= static_cast<Byte>(usable);
    for (int e = 0; e < kEpochs; ++e) {
      if (!in(usable, e)) {
        clear(&t->m.copy[r][e]);
        for (auto& clock : t->m.clock) clock[r][e] = 0;
      }
      if (in(usable, e) || !o.has(kLower)) continue;
      clear(&t->m.replicate[r][e]);
      clear(&t->m.stored[r][e]);
    }
  }
}

// I1: an acknowledged push is in every replica of its range's epoch.
std::string lost_push(const Moves& m, const State& t, int range) {
  const RangeView& view = t.v[t.co.journaled].r[range];
  for (int c = 0; c < kClients; ++c) {
    for (int n = t.c[c].start + 1; n <= t.m.pushed[c][range]; ++n) {
      if (!m.touches(c, n, range, view.epoch)) continue;
      for (int h = 0; h < kHosts; ++h) {
        if (!in(view.replicas, h) || t.h[h].up == 0) continue;
        const bool whole = range == 1 && t.h[h].r[1].kind == kNone && m.o.split;
        if (!contains(t.h[h].r[whole ? 0 : range], entry_of(c, n)))
          return fmt::format("I1: push {} of client {} is acknowledged, not in range {} on host {}",
                             n, c, range, h);
      }
    }
  }
  return {};
}

int shown(const Options& o, const Replica& r) { return o.has(kShown) ? r.applied : r.length; }

// I10: nothing uncommitted is shown.
std::string shown_too_early(const Moves& m, const State& t, int h, int range) {
  const Replica& r = t.h[h].r[range];
  const Observer& committed = t.committed[range];
  for (int i = 0; i < shown(m.o, r); ++i) {
    if (i >= committed.length || (r.log[i] != committed.log[i] && r.log[i] != kHole))
      return fmt::format("I10: host {} shows entry {} of range {}, not committed", h, i + 1, range);
  }
  return {};
}

// Whether a linearizable read at this primary is answered now.
bool read_confirmed(const Moves& m, const State& t, int h, int range) {
  if (m.has(kReadNew) && t.h[h].r[range].applied < t.h[h].led[range]) return false;
  const int asked = waited_for(m.o, t, h, range);
  int confirmed = 0;
  for (int b = 0; b < kHosts; ++b) {
    const bool answers =
        in(asked, b) && t.h[b].up != 0 && connected(t, h, b) && serves(t, b, range);
    if (answers && t.h[b].r[range].epoch == t.h[h].r[range].epoch) confirmed |= 1 << b;
  }
  return m.has(kReadAll) ? confirmed == asked : asked == 0 || confirmed != 0;
}

std::string stale_read(const Moves& m, const State& t, int h, int range) {
  if (!is_primary(t, h, range) || !read_confirmed(m, t, h, range)) return {};
  const Replica& r = t.h[h].r[range];
  for (int c = 0; c < kClients; ++c) {
    for (int n = t.c[c].start + 1; n <= t.m.pushed[c][range]; ++n) {
      const Byte* end = r.log + shown(m.o, r);
      if (m.touches(c, n, range, r.epoch) && std::find(r.log, end, entry_of(c, n)) == end)
        return fmt::format("I7: a linearizable read at host {} misses push {} of client {}", h, n,
                           c);
    }
  }
  return {};
}

}  // namespace

void Moves::canonical(State* t) const {
  canonical_hosts(t);
  for (Client& client : t->c) {
    if (client.life == kGone) client = {.start = client.start};
  }
  const int oldest = oldest_view(*t);
  for (int v = 0; v < oldest; ++v) clear(&t->v[v]);
  canonical_messages(o, t);
}

void Moves::check(const State& t) const {
  for (int r = 0; r < o.ranges; ++r) {
    if (in(t.lost, r)) continue;
    if (const std::string why = lost_push(*this, t, r); !why.empty()) violate(why);
    for (int h = 0; h < kHosts; ++h) {
      if (!serves(t, h, r)) continue;
      if (const std::string why = shown_too_early(*this, t, h, r); !why.empty()) violate(why);
      if (!o.reads) continue;
      if (const std::string why = stale_read(*this, t, h, r); !why.empty()) violate(why);
    }
  }
}

bool Moves::touches(int client, int number, int range, int epoch) const {
  if (range >= o.ranges || number > o.pushes) return false;
  if (o.split && (s.split == 0 || epoch < s.split)) return range == 0;
  if (o.touches.empty()) return true;
  return in(o.touches.at(static_cast<std::size_t>(client * o.pushes + number - 1)) - 'a' + 1,
            range);
}

int Moves::previous(int client, int number, int range, int epoch) const {
  while (--number > 0 && !touches(client, number, range, epoch)) {
  }
  return number <= s.c[client].start ? 0 : number;
}

const RangeView& view_of(const State& s, int host, int range) {
  return s.v[s.h[host].view].r[range];
}

bool serves(const State& s, int host, int range) {
  const Host& at = s.h[host];
  if (at.up == 0 || at.server == 0 || at.fresh != 0) return false;
  const RangeView& view = view_of(s, host, range);
  return at.r[range].kind == kMember && view.epoch == at.r[range].epoch;
}

bool is_primary(const State& s, int host, int range) {
  return serves(s, host, range) && view_of(s, host, range).primary == host;
}

int waited_for(const Options& o, const State& s, int host, int range) {
  const RangeView& view = view_of(s, host, range);
  int hosts = view.replicas & ~(1 << host);
  if (view.joining != 0 && s.h[host].copy_done[range] != 0 && o.has(kCopyCounts))
    hosts |= 1 << (view.joining - 1);
  return hosts;
}

bool connected(const State& s, int host, int other) { return s.h[host].cut == s.h[other].cut; }

// A partition takes client 1 with host 0; client 0 stays with the coordinator.
bool client_reaches(const State& s, int client, int host) {
  const Byte cut = client == 1 ? s.h[0].cut : Byte{0};
  return s.h[host].cut == cut;
}

State initial(const Options& o) {
  State s;
  clear(&s);
  View& view = s.v[1];
  const auto replicas = static_cast<Byte>((1 << o.replicas) - 1);
  const int ranges = o.split ? 1 : o.ranges;
  for (int r = 0; r < ranges; ++r) view.r[r] = {1, static_cast<Byte>(r % o.replicas), replicas, 0};
  const int present = o.client_joins ? o.clients - 1 : o.clients;
  view.clients = static_cast<Byte>((1 << present) - 1);
  for (int h = 0; h < o.hosts; ++h) {
    if (h >= o.replicas && o.joins == 0 && !o.partial) continue;
    s.h[h].up = s.h[h].server = s.h[h].view = 1;
    for (int r = 0; r < ranges && h < o.replicas; ++r)
      s.h[h].r[r].kind = kMember, s.h[h].r[r].epoch = 1;
  }
  const Moves moves{{o, s, false, nullptr, nullptr}};
  for (int c = 0; c < o.clients; ++c) {
    s.c[c].life = c < present ? kLiving : kComing;
    s.c[c].view = 1;
    for (int n = 1; n <= o.pushes && !o.clocks; ++n) {
      for (int r = 0; r < o.ranges; ++r)
        s.m.push[c][n - 1][r] = moves.touches(c, n, r, 1) ? bit(1) : Byte{0};
    }
  }
  s.co.up = s.co.journaled = s.co.announced = 1;
  moves.canonical(&s);
  return s;
}

bool goal(const Options& o, const State& s) {
  if (s.lost != 0) return true;
  if (s.co.up == 0 || s.co.journaled != s.co.announced || s.co.known != 0) return false;
  const View& view = s.v[s.co.journaled];
  if (o.split && s.split == 0) return false;
  for (const Client& client : s.c) {
    if (client.life == kComing) return false;
  }
  const Moves moves{{o, s, false, nullptr, nullptr}};
  for (int r = 0; r < o.ranges; ++r) {
    if (view.r[r].joining != 0) return false;
    for (int c = 0; c < o.clients; ++c) {
      if (!in(view.clients, c)) continue;
      if (s.c[c].life == kGone) return false;
      if (o.clocks && s.c[c].clock != o.pushes) return false;
      if (s.c[c].got[r] < s.c[c].start) return false;
      if (moves.previous(c, o.pushes + 1, r, kEpochs) == 0) continue;
      if (s.c[c].got[r] < moves.previous(c, o.pushes + 1, r, kEpochs)) return false;
    }
  }
  return true;
}

void successors(const Options& o, const State& s, bool labels, std::vector<Successor>* out,
                std::string* violation) {
  out->clear();
  violation->clear();
  if (s.lost != 0) return;
  const Moves moves{{o, s, labels, out, violation}};
  client_moves(moves);
  if (o.clocks) clock_moves(moves);
  server_moves(moves);
  copy_moves(moves);
  view_moves(moves);
  coordinator_moves(moves);
  aftermath_moves(moves);
  const std::size_t faults = out->size();
  fault_moves(moves);
  for (std::size_t i = faults; i < out->size(); ++i) (*out)[i].fault = true;
}

Rule rule_named(std::string_view name) {
  return static_cast<Rule>(std::find(kRuleNames, kRuleNames + kRules, name) - kRuleNames);
}

std::string describe(const State& s) {
  constexpr const char* kKinds[] = {"none", "member", "joining", "dropped"};
  std::string text;
  for (int h = 0; h < kHosts; ++h) {
    for (int r = 0; s.h[h].up != 0 && r < kRanges; ++r) {
      const Replica& replica = s.h[h].r[r];
      if (replica.kind == kNone) continue;
      text += fmt::format("     host {} view {} range {} {:<7} epoch {} applied {} last {} {} log",
                          h, s.h[h].view, r, kKinds[replica.kind], replica.epoch, replica.applied,
                          replica.last[0], replica.last[1]);
      for (int i = 0; i < replica.length; ++i) {
        const Byte entry = replica.log[i];
        text += entry == kHole ? std::string(" hole")
                               : fmt::format(" {}.{}", client_of(entry), number_of(entry));
      }
      text += '\n';
    }
  }
  return text + fmt::format("     coordinator {}, view {} journaled, {} announced\n",
                            s.co.up != 0 ? "up" : "down", s.co.journaled, s.co.announced);
}

}  // namespace regroup::model::ps
