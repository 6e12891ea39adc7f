// What the parts of the protocol model share: the state that is left, the successors that are
// found, and readings of it.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/model/protocol.h"

namespace regroup::model::protocol {

struct Moves : MovesOf<Options, State> {
  template <class... Values>
  void emit(State t, fmt::format_string<Values...> text, Values&&... values) const {
    canonical(&t);
    add(t, text, std::forward<Values>(values)...);
  }
  void canonical(State* t) const;  // forgets what cannot matter any more

  [[nodiscard]] bool has(Rule rule) const { return o.has(rule); }
  [[nodiscard]] int generation(int world) const { return s.w[world].generation; }
  [[nodiscard]] bool contains(int world, int member) const {
    return (s.w[world].members >> member & 1) != 0;
  }
  [[nodiscard]] bool alive(int host) const { return s.a[host].alive != 0; }
  [[nodiscard]] bool reachable(int host) const {
    return s.a[host].alive != 0 && s.a[host].cut == 0;
  }
  [[nodiscard]] bool reachable_member(int member) const { return reachable(o.host_of(member)); }
  [[nodiscard]] int committed(int member) const;
  // Who holds or computes interval `k` of `step`.
  [[nodiscard]] int source(int world, int step, int k) const;
  [[nodiscard]] int share(int world, int step, int member) const;  // bits of intervals
  [[nodiscard]] bool whole_result(const State& t, int host, int step) const;
  [[nodiscard]] int hosts_needed() const;  // bits: agents that the coordinator talks to
  [[nodiscard]] bool learner_ready() const;
  [[nodiscard]] bool state_on(int host) const;  // members that can go on, were they let
  [[nodiscard]] bool lease_is_out(int host) const;
  [[nodiscard]] int votes_of(int world) const {
    return o.votes_by_generation ? s.w[world].generation : 0;
  }
};

void member_moves(const Moves& m);
void agent_moves(const Moves& m);
void coordinator_moves(const Moves& m);
void learner_moves(const Moves& m);
void lease_moves(const Moves& m);     // what follows when time passes without a coordinator
void snapshot_moves(const Moves& m);  // of a coordinator that can reach nobody with the state
void leftover_moves(const Moves& m);  // of the dead that are not reaped
void fault_moves(const Moves& m);

void die(State* t, int member);
void end_coordinator(const Moves& m, State* t);
// Writes the slice of the result that `member` computed last.
void write_slice(const Moves& m, State* t, int member);
void start_revoke(State* t);

}  // namespace regroup::model::protocol
