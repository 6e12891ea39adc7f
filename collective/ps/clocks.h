// Clocks of mode ssp (stale synchronous parallel). A client counts its completed turns in a word of
// its lane of shard 0; a pull at clock c waits while the clock of another client is below
// c - staleness. docs/design/ps_lanes.md says why a client that joins cannot break the bound.
//
// The functions are templates over an atomics policy, so that the model test
// (tests/model/ps_clock_model_test.cc) can enumerate the interleavings of the shipped code.
// `word_of(lane)` is the ClockWord of a lane, `bell_of(lane)` the doorbell of its client. All
// accesses are sequentially consistent: each argument below is about their one order.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>

#include "shmem/doorbell.h"

namespace regroup::collective::ps {

// Completed turns + 1; 0: the lane has no client of mode ssp. Its client writes it; a server that
// frees the lane of a dead client sets it to 0.
template <class P>
using ClockWord = typename P::template Atomic<std::uint64_t>;

struct SlowClient {
  std::uint32_t lane = 0;
  std::uint64_t clock = 0;
  bool operator==(const SlowClient&) const = default;
};

// The client with the lowest clock, that of lane `own` excepted; of equals the lowest lane.
// Nothing: there is no other.
template <class P, class WordOf>
[[nodiscard]] std::optional<SlowClient> slowest_other(WordOf word_of, std::uint32_t lanes,
                                                      std::uint32_t own) {
  std::optional<SlowClient> out;
  for (std::uint32_t lane = 0; lane < lanes; ++lane) {
    if (lane == own) continue;
    const std::uint64_t word = word_of(lane).load(std::memory_order_seq_cst);
    if (word != 0 && (!out || word - 1 < out->clock)) out = SlowClient{lane, word - 1};
  }
  return out;
}

// True if a pull at `clock` may not go on while another client's clock is `other`.
[[nodiscard]] constexpr bool is_too_far_ahead(std::uint64_t clock, std::uint64_t other,
                                              std::uint64_t staleness) {
  return clock > staleness && other < clock - staleness;
}

// Begins the clock of lane `own` at the highest one of the others, and returns it. First the client
// shows itself at clock 0, then it looks: who pulls meanwhile at clock c has stored c before and
// reads this word afterwards, so either it sees this client and waits, or this client sees c.
// One client at a time begins: another would see this one at clock 0, and perhaps nobody else.
template <class P, class WordOf>
[[nodiscard]] std::uint64_t begin_clock(WordOf word_of, std::uint32_t lanes, std::uint32_t own) {
  word_of(own).store(1, std::memory_order_seq_cst);
  std::uint64_t highest = 1;
  for (std::uint32_t lane = 0; lane < lanes; ++lane) {
    if (lane != own)
      highest = std::max<std::uint64_t>(highest, word_of(lane).load(std::memory_order_seq_cst));
  }
  word_of(own).store(highest, std::memory_order_seq_cst);
  return highest - 1;
}

// Wakes all clients that wait for a clock. After a store to a word, which they look at again.
template <class P, class BellOf>
void wake_clock_waiters(BellOf bell_of, std::uint32_t lanes) {
  for (std::uint32_t lane = 0; lane < lanes; ++lane) shmem::ring_if_asleep<P>(bell_of(lane));
}

// Says that the client of lane `own` has completed `clock` turns, whose pushes are all applied.
template <class P, class WordOf, class BellOf>
void count_clock(WordOf word_of, BellOf bell_of, std::uint32_t lanes, std::uint32_t own,
                 std::uint64_t clock) {
  word_of(own).store(clock + 1, std::memory_order_seq_cst);
  wake_clock_waiters<P>(bell_of, lanes);
}

// The clock of lane `own` holds up nobody any more. By its client, or by a server that has found
// the client dead.
template <class P, class WordOf, class BellOf>
void end_clock(WordOf word_of, BellOf bell_of, std::uint32_t lanes, std::uint32_t own) {
  word_of(own).store(0, std::memory_order_seq_cst);
  wake_clock_waiters<P>(bell_of, lanes);
}

}  // namespace regroup::collective::ps
