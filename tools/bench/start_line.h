// Where the ranks of one side begin each iteration at the same moment, as C and C++: behind a barrier of the
// side's own some ranks leave a cache line's way earlier than others, which is more than a small operation
// takes. All begin at a time of the clock that the last of them sets. More ranks than cores cannot begin at
// the same moment: behind the first time each begins when it gets there.
#pragma once

// NOLINTBEGIN(modernize-deprecated-headers, readability-identifier-naming): C has no others
#include <sched.h>
#include <stdint.h>
#include <time.h>

enum {
  START_LINE = 64,
  START_LOOKS = 250,
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

// Writes to a line, behind its times, the cores that this process may run on, a bit each: a launcher may have
// bound each rank to its own. What does not fit it shares bits with the rest.
static inline void start_show_cores(uint64_t* line) {
  uint64_t mask[START_MASK] = {0};
  if (sched_getaffinity(0, sizeof mask, (cpu_set_t*)(void*)mask) != 0) return;
  for (int i = 0; i < START_MASK; ++i) line[START_TIMES + i % START_WORDS] |= mask[i];
}

static inline int start_count(const uint64_t* words) {
  int sum = 0;
  for (int i = 0; i < START_WORDS; ++i) sum += __builtin_popcountll(words[i]);
  return sum;
}

// `lines`: START_LINE bytes for each rank in memory that all share, zero at first. `last`: what it returned
// the time before, 0 at first. Returns the moment, on the clock, that has just come; 0: another rank has not
// come within a minute. Times go to two words in turn: who is through may come to the next start before
// another has read when it came to this one, but not to the one behind it.
static inline uint64_t start_together(char* lines, int rank, int ranks, uint64_t last) {
  static int cores = 0;  // of all ranks, once all have been here
  static unsigned turn = 0;
  const uint64_t here = start_clock();
  if (cores != 0 && ranks > cores) return here;
  turn = (turn + 1) % START_TIMES;
  uint64_t begin = here;
  uint64_t all[START_WORDS] = {0};
  uint64_t* const mine = (uint64_t*)(void*)(lines + rank * START_LINE);
  if (cores == 0) start_show_cores(mine);
  __atomic_store_n(mine + turn, here, __ATOMIC_RELEASE);
  for (int r = 0; r < ranks; ++r) {
    const uint64_t* const theirs = (const uint64_t*)(const void*)(lines + r * START_LINE);
    uint64_t seen = 0;
    for (uint64_t look = 1; (seen = __atomic_load_n(theirs + turn, __ATOMIC_ACQUIRE)) <= last; ++look) {
      __builtin_ia32_pause();
      if (look < START_LOOKS) continue;
      sched_yield();  // the other may need this core
      if (look % 1024 == 0 && start_clock() - here > 60000000000U) return 0;
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
