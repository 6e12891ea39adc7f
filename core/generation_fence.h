// The generation fence: nobody writes one of generation g before every living member that
// was in an earlier generation on the node has left it. docs/design/interfaces.md, Gate. Each member's `left`
// is the highest generation whose shared buffers it will not touch again; kMaxGeneration while it is in none.
// Templates over a policy, as core/doorbell.h; arena.h has the loop over the lines.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "core/world.h"

namespace regroup::core {

template <class P>
using AtomicNumber = typename P::template Atomic<std::uint32_t>;

// Member: its last store to a result of `g` is behind it, non-temporal ones fenced
// (collective/shm/publish.h): this release store alone does not order those. Then it rings all.
template <class P>
void leave_generation(AtomicNumber<P>& left, Generation g) {
  left.store(std::max(left.load(std::memory_order_relaxed), g), std::memory_order_release);
}

// Member: before it joins `g`, so that the gates of later generations count on it as soon as it is in.
template <class P>
void hold_fence(AtomicNumber<P>& left, Generation g) {
  left.store(g - 1, std::memory_order_seq_cst);
}

// Agent, of a line that it hands out; member, when it has finished or was let go (then it rings all).
template <class P>
void leave_all_generations(AtomicNumber<P>& left) {
  left.store(kMaxGeneration, std::memory_order_release);
}

// True if the member of this line keeps no result of `g` from being written.
template <class P>
[[nodiscard]] bool has_left_before(const AtomicNumber<P>& left, Generation g) {
  return left.load(std::memory_order_acquire) + 1 >= g;
}

}  // namespace regroup::core
