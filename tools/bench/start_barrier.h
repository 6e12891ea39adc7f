// A barrier that releases all ranks at the same time of the clock, usable from C and C++. Ranks
// leave an ordinary barrier at times that differ by the latency of a cache line, which is more than
// a small operation takes. The last rank to arrive sets the time at which all begin. If there are
// more ranks than cores, they cannot begin together: after the first call each rank begins as soon
// as it arrives.
#pragma once

// NOLINTBEGIN(modernize-deprecated-headers, readability-identifier-naming): C has no others
#include <sched.h>
#include <stdint.h>
#include <time.h>

enum {
  START_SLOT = 64,
  START_POLLS = 250,
  START_WAIT_NS = 1000,
  START_TIMES = 2,
  START_WORDS = 6,
  START_MASK = 16
};
// NOLINTEND(modernize-deprecated-headers, readability-identifier-naming)

static inline uint64_t start_clock(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (uint64_t)at.tv_sec * 1000000000U + (uint64_t)at.tv_nsec;
}

// Writes the cores that this process may run on to a slot, after its times, one bit each: a
// launcher may have bound each rank to cores of its own. Cores beyond the mask share bits with
// others.
static inline void start_show_cores(uint64_t* slot) {
  uint64_t mask[START_MASK] = {0};
  if (sched_getaffinity(0, sizeof mask, (cpu_set_t*)(void*)mask) != 0) return;
  for (int i = 0; i < START_MASK; ++i) slot[START_TIMES + i % START_WORDS] |= mask[i];
}

static inline int start_count(const uint64_t* words) {
  int sum = 0;
  for (int i = 0; i < START_WORDS; ++i) sum += __builtin_popcountll(words[i]);
  return sum;
}

// Blocks until all `ranks` ranks have called it, at most a minute. `slots`: START_SLOT bytes for
// each rank in shared memory, zero before the first call. `last`: the result of the previous call,
// 0 in the first. Returns the time at which all ranks begin, in ns of the monotonic clock; 0:
// another rank did not call it within a minute. Arrival times alternate between two words: a
// released rank may arrive at the next barrier before another rank has read its time of this one,
// but not at the barrier after the next.
static inline uint64_t start_together(char* slots, int rank, int ranks, uint64_t last) {
  static int cores = 0;  // the number that all ranks may use; 0 until the first call ends
  static unsigned turn = 0;
  const uint64_t here = start_clock();
  if (cores != 0 && ranks > cores) return here;
  turn = (turn + 1) % START_TIMES;
  uint64_t begin = here;
  uint64_t all[START_WORDS] = {0};
  uint64_t* const mine = (uint64_t*)(void*)(slots + rank * START_SLOT);
  if (cores == 0) start_show_cores(mine);
  __atomic_store_n(mine + turn, here, __ATOMIC_RELEASE);
  for (int r = 0; r < ranks; ++r) {
    const uint64_t* const theirs = (const uint64_t*)(const void*)(slots + r * START_SLOT);
    uint64_t seen = 0;
    for (uint64_t poll = 1; (seen = __atomic_load_n(theirs + turn, __ATOMIC_ACQUIRE)) <= last;
         ++poll) {
      __builtin_ia32_pause();
      if (poll < START_POLLS) continue;
      sched_yield();  // the other rank may need this core
      if (poll % 1024 == 0 && start_clock() - here > 60000000000U) return 0;
    }
    if (seen > begin) begin = seen;
    for (int i = 0; cores == 0 && i < START_WORDS; ++i) all[i] |= theirs[START_TIMES + i];
  }
  if (cores == 0) cores = start_count(all);
  begin += START_WAIT_NS;
  while (start_clock() < begin) {
  }
  return begin;
}
