// The generation fence: no member writes a result of generation g before every living member of an
// earlier generation on the host has left that generation (docs/design/interfaces.md, Generation
// fence). Each member's word `left_generation` is the highest generation whose shared buffers it
// will not touch again; kMaxGeneration while it is in none. Templates over a policy, as
// shmem/doorbell.h; all_left_before() of shmem/arena.h loops over the member slots.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "proto/world.h"

namespace regroup::shmem {

template <class P>
using AtomicNumber = typename P::template Atomic<std::uint32_t>;

// Member: call after the last store to a result of `g`, and after fencing non-temporal stores
// (collective/reduce/publish.h), which this release store does not order. Then ring all.
template <class P>
void leave_generation(AtomicNumber<P>& left_generation, proto::Generation g) {
  left_generation.store(std::max(left_generation.load(std::memory_order_relaxed), g),
                        std::memory_order_release);
}

// Member: call before joining `g`, so that fences of later generations wait for this member from
// the moment it is in `g`.
template <class P>
void hold_fence(AtomicNumber<P>& left_generation, proto::Generation g) {
  left_generation.store(g - 1, std::memory_order_seq_cst);
}

// Agent: call when assigning a slot. Member: call when it has finished or was excluded; then ring
// all.
template <class P>
void leave_all_generations(AtomicNumber<P>& left_generation) {
  left_generation.store(proto::kMaxGeneration, std::memory_order_release);
}

// True if the member with the word `left_generation` does not hold up writes to results of `g`.
template <class P>
[[nodiscard]] bool has_left_before(const AtomicNumber<P>& left_generation, proto::Generation g) {
  return left_generation.load(std::memory_order_acquire) + 1 >= g;
}

}  // namespace regroup::shmem
