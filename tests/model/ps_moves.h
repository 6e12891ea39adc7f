// What the parts of the model of the parameter server share: the state that is left, the successors
// that are found, and readings of it.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/model/ps_model.h"

namespace regroup::model::ps {

// A push is named by its client and its number, 1 .. kPushes, for ever.
constexpr Byte entry_of(int client, int number) {
  return static_cast<Byte>(1 + client * kPushes + number - 1);
}
constexpr int client_of(Byte entry) { return (entry - 1) / kPushes; }
constexpr int number_of(Byte entry) { return (entry - 1) % kPushes + 1; }
constexpr bool in(int bits, int i) { return (bits >> i & 1) != 0; }
constexpr Byte bit(int i) { return static_cast<Byte>(1 << i); }

struct Moves : MovesOf<Options, State> {
  template <class... Values>
  void emit(State t, fmt::format_string<Values...> text, Values&&... values) const {
    canonical(&t);
    check(t);
    add(t, text, std::forward<Values>(values)...);
  }
  void canonical(State* t) const;    // forgets what cannot matter any more
  void check(const State& t) const;  // what must hold in each state (ps_state.cc)

  [[nodiscard]] bool has(Rule rule) const { return o.has(rule); }
  // In epochs before a split range 0 has all keys.
  [[nodiscard]] bool touches(int client, int number, int range, int epoch) const;
  // The client's last push on this range before `number`; 0 if none.
  [[nodiscard]] int previous(int client, int number, int range, int epoch) const;
};

// The range as the server of `host` sees it.
const RangeView& view_of(const State& s, int host, int range);
// The server runs, has adopted a view, and its replica of the range is in the epoch of that view.
bool serves(const State& s, int host, int range);
bool is_primary(const State& s, int host, int range);
// Hosts whose Stored the primary waits for. The linearizable read asks the same ones.
int waited_for(const Options& o, const State& s, int host, int range);
bool connected(const State& s, int host, int other);
bool client_reaches(const State& s, int client, int host);

// The log changes only here: entries are applied once (I2), and what is committed stays (I4).
void commit(const Moves& m, State* t, int range, int lsn, Byte entry, int epoch);
void apply_upto(const Moves& m, State* t, int host, int range, int lsn);
// Commits what every replica has, applies it and acknowledges it.
void advance_primary(const Moves& m, State* t, int host, int range);
void say_caught(const Moves& m, State* t, int host, int range);
void count_last(State* t, int host, int range);  // last push numbers from the log

// The highest number of the client's pushes that this primary has committed.
int committed_number(const Replica& r, int client);

void clock_moves(const Moves& m);
void client_moves(const Moves& m);
void server_moves(const Moves& m);
void view_moves(const Moves& m);  // of servers
void copy_moves(const Moves& m);
void coordinator_moves(const Moves& m);
void fault_moves(const Moves& m);
void aftermath_moves(const Moves& m);  // what faults leave behind

}  // namespace regroup::model::ps
