// How bulk data becomes visible to other members of the host: write it with store_block(), then
// publish() the word on which they wait. Non-temporal stores occur here, in the kernels' close()
// and scale(), and in collective/reduce/optimizer_kernels.cc only: a release store does not order
// them, so publish() fences first. ThreadSanitizer sees neither such stores nor the fence; its
// build sets REGROUP_PLAIN_STORES.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/cpu.h"

namespace regroup::collective::reduce {

inline constexpr std::size_t kCacheLine = 64;

enum class Stores {
  kPlain,   // through the cache: data that is read again soon
  kStream,  // past the cache, if `to` is 16-byte aligned: for results larger than the cache
};

#ifdef REGROUP_MUTANT_RELAXED_PUBLISH  // tests/collective: proof that the race detector would see
                                       // this bug
inline constexpr std::memory_order kPublishOrder = std::memory_order_relaxed;
#else
// At least release, for the data. Sequentially consistent, so that of members that publish and then
// load each other's words at least one sees all of them.
inline constexpr std::memory_order kPublishOrder = std::memory_order_seq_cst;
#endif

// True if stores of kind `how` bypass the cache in this build.
[[nodiscard]] inline bool passes_cache(Stores how) {
#ifdef REGROUP_PLAIN_STORES
  static_cast<void>(how);
  return false;
#else
  return how == Stores::kStream;
#endif
}

// Copies `bytes` from `from` to `to`, which must not overlap. Other members may read them after a
// later publish().
inline void store_block(std::byte* to, const std::byte* from, std::size_t bytes, Stores how) {
  std::size_t done = 0;
#ifndef REGROUP_PLAIN_STORES
  if (how == Stores::kStream && reinterpret_cast<std::uintptr_t>(to) % 16 == 0) {
    for (; done + kCacheLine <= bytes; done += kCacheLine)
      base::stream_line(to + done, from + done);
  }
#endif
  static_cast<void>(how);
  if (done < bytes) std::memcpy(to + done, from + done, bytes - done);
}

// Orders all earlier stores of this thread, non-temporal ones included, before all later stores. A
// writer that has used store_block() must call it even if it leaves without a publish() because its
// generation was revoked: its next release store says that it has left, and the next writer relies
// on that.
inline void complete_stores() {
#ifndef REGROUP_PLAIN_STORES
  base::store_fence();
#endif
}

// Stores `value` after every earlier store of this thread, non-temporal ones included.
inline void publish(std::atomic<std::uint64_t>& word, std::uint64_t value) {
  complete_stores();
  word.store(value, kPublishOrder);
}

// publish() for a thread that has executed no non-temporal store since complete_stores(). Does not
// wait until the store is visible (a full fence would wait until this core owns all recently
// written lines again), so a later load may be performed first unless fence() is called in between.
inline void publish_unfenced(std::atomic<std::uint64_t>& word, std::uint64_t value) {
  word.store(value, std::min(kPublishOrder, std::memory_order_release));
}

// Makes all earlier stores of this thread visible before its later loads.
inline void fence() { base::full_fence(); }

// Prefetches the cache line at `line` for writing.
inline void prefetch_for_write(const void* line) { base::prefetch_to_write(line); }

// memcpy() of at most 64 bytes, inlined: the function call would take longer than the copy.
inline void copy_small(std::byte* to, const std::byte* from, std::size_t bytes) {
  const auto ends = [&]<std::size_t Each>(std::integral_constant<std::size_t, Each>) {
    std::byte head[Each];
    std::byte tail[Each];
    __builtin_memcpy(head, from, Each);
    __builtin_memcpy(tail, from + bytes - Each, Each);
    __builtin_memcpy(to, head, Each);
    __builtin_memcpy(to + bytes - Each, tail, Each);
  };
  if (bytes >= 32) return ends(std::integral_constant<std::size_t, 32>());
  if (bytes >= 16) return ends(std::integral_constant<std::size_t, 16>());
  if (bytes >= 8) return ends(std::integral_constant<std::size_t, 8>());
  if (bytes >= 4) return ends(std::integral_constant<std::size_t, 4>());
  for (std::size_t i = 0; i < bytes; ++i) to[i] = from[i];
}

}  // namespace regroup::collective::reduce
