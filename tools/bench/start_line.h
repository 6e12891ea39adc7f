// Where the ranks of one side begin each iteration at the same moment, as C and C++: behind a barrier of the
// side's own some ranks leave a cache line's way earlier than others, which is more than a small operation
// takes. All begin at a time of the clock that the last of them sets. More ranks than cores cannot begin at
// the same moment: then each begins when it gets there.
#pragma once

// NOLINTBEGIN(modernize-deprecated-headers, readability-identifier-naming): C has no others
#include <sched.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

enum { START_LINE = 64, START_LOOKS = 250, START_WAIT_NS = 1000 };
// NOLINTEND(modernize-deprecated-headers, readability-identifier-naming)

static inline uint64_t start_clock(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (uint64_t)at.tv_sec * 1000000000U + (uint64_t)at.tv_nsec;
}

// `lines`: START_LINE bytes for each rank in memory that all share, zero at first. `last`: what it returned
// the time before, 0 at first. Returns the moment, on the clock, that has just come; 0: another rank has not
// come within a minute.
static inline uint64_t start_together(char* lines, int rank, int ranks, uint64_t last) {
  static long cores = 0;
  if (cores == 0) cores = sysconf(_SC_NPROCESSORS_ONLN);
  const uint64_t here = start_clock();
  if (ranks > cores) return here;
  uint64_t begin = here;
  __atomic_store_n((uint64_t*)(void*)(lines + rank * START_LINE), here, __ATOMIC_RELEASE);
  for (int r = 0; r < ranks; ++r) {
    const uint64_t* const theirs = (const uint64_t*)(const void*)(lines + r * START_LINE);
    uint64_t seen = 0;
    for (uint64_t look = 1; (seen = __atomic_load_n(theirs, __ATOMIC_ACQUIRE)) <= last; ++look) {
      __builtin_ia32_pause();
      if (look < START_LOOKS) continue;
      sched_yield();  // the other may need this core
      if (look % 1024 == 0 && start_clock() - here > 60000000000U) return 0;
    }
    if (seen > begin) begin = seen;
  }
  begin += START_WAIT_NS;
  while (start_clock() < begin) {
  }
  return begin;
}
