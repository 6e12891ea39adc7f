// Kills and replaces members many times, for backends whose ranks are processes: a member dies
// inside an operation, the survivors continue without it, then with a replacement. The survivors'
// memory and descriptors must not grow.
#pragma once

#include "tests/collective/job.h"

namespace regroup::collective::testing {

inline constexpr int kCycleRanks = 4;

struct Cycles {
  proto::Generation count;    // number of cycles, two generations each
  proto::Generation settled;  // later generations are compared with this one
  std::size_t slack_kib;      // allowed growth of resident private memory
  std::size_t slack_descriptors = 0;
};

// To be called in a test: expects a job of kCycleRanks ranks to complete all cycles.
void run_cycles(TestJob& job, const Cycles& cycles);

}  // namespace regroup::collective::testing
