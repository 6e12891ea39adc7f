// The transitions of a member's state word (proto/member_state.h). Only two threads change the
// word, both by compare-and-swap: the member's own, and the agent's when it revokes. Implements
// sections 3 and 4 of docs/design/architecture.md.
//
// The functions are templates over an atomics policy, so that the model test (tests/model/) can
// enumerate the interleavings of the shipped code. `P::Atomic<T>` has std::atomic<T>'s interface.
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/member_state.h"
#include "proto/world.h"

namespace regroup::shmem {

template <class P>
using AtomicWord = typename P::template Atomic<std::uint64_t>;

template <class P>
[[nodiscard]] proto::StateWord load_state(const AtomicWord<P>& word) {
  return proto::StateWord::unpack(word.load(std::memory_order_acquire));
}

template <class P>
[[nodiscard]] bool swap_state(AtomicWord<P>& word, proto::StateWord from, proto::StateWord to) {
  std::uint64_t expected = from.pack();
  return word.compare_exchange_strong(expected, to.pack(), std::memory_order_acq_rel,
                                      std::memory_order_acquire);
}

// Member: committed(g, p) -> open(g, next). False if the agent has revoked g.
template <class P>
[[nodiscard]] bool open_transaction(AtomicWord<P>& word, proto::Generation g, proto::Position p,
                                    proto::Position next) {
  return swap_state<P>(word, {proto::Phase::kCommitted, false, g, p},
                       {proto::Phase::kOpen, false, g, next});
}

// Member: open(g, p) -> committed(g, p), once all members of g have voted. False if the agent
// revoked g first; then this member cannot decide, and the next World says whether p is committed.
template <class P>
[[nodiscard]] bool commit_transaction(AtomicWord<P>& word, proto::Generation g, proto::Position p) {
  return swap_state<P>(word, {proto::Phase::kOpen, false, g, p},
                       {proto::Phase::kCommitted, false, g, p});
}

// Agent: ends generation g. Raises `revoked_up_to` first, then changes the word, so that no
// compare-and-swap of a member that read the old word succeeds. Only one thread of the host
// revokes.
template <class P>
void revoke(AtomicWord<P>& word, typename P::template Atomic<std::uint32_t>& revoked_up_to,
            proto::Generation g) {
  if (revoked_up_to.load(std::memory_order_relaxed) < g)
    revoked_up_to.store(g, std::memory_order_seq_cst);
  for (;;) {
    const proto::StateWord now = load_state<P>(word);
    proto::StateWord next = now;
    if (now.phase == proto::Phase::kNone || now.generation > g) return;
    next.generation = g;
    if (now.phase == proto::Phase::kCommitted) next.revoked = true;
    if (now.phase == proto::Phase::kOpen) next.phase = proto::Phase::kClosed;
    if (next == now || swap_state<P>(word, now, next)) return;
  }
}

// Member: closed(x, p) -> committed(x, p) + revoked, if another member has committed p; called
// before the member applies p from its own arena. Keeps the ended generation x, so that a further
// revoke still changes the word. False if the agent has revoked again.
template <class P>
[[nodiscard]] bool accept_commit(AtomicWord<P>& word, proto::StateWord closed) {
  return swap_state<P>(word, closed,
                       {proto::Phase::kCommitted, true, closed.generation, closed.position});
}

// Member: enters generation g from `from`, the word that it has read: closed(x, p) -> open(g, p),
// committed(x, p) + revoked -> committed(g, p). False if g is already revoked.
template <class P>
[[nodiscard]] bool join_generation(AtomicWord<P>& word,
                                   const typename P::template Atomic<std::uint32_t>& revoked_up_to,
                                   proto::StateWord from, proto::Generation g) {
  if (revoked_up_to.load(std::memory_order_seq_cst) >= g) return false;
  const proto::Phase phase =
      from.phase == proto::Phase::kClosed ? proto::Phase::kOpen : proto::Phase::kCommitted;
  return swap_state<P>(word, from, {phase, false, g, from.position});
}

}  // namespace regroup::shmem
