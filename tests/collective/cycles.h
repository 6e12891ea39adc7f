// Killed and formed again, many times, for any backend whose ranks are processes: a member dies
// inside an operation, the survivors go on without it, then with another in its place. What the
// survivors hold of the system stays what it was.
#pragma once

#include "tests/collective/job.h"

namespace regroup::collective::testing {

inline constexpr int kCycleRanks = 4;

struct Cycles {
  proto::Generation count;  // of cycles, two generations each
  proto::Generation
      settled;  // the generation behind which holdings are compared with those of later ones
  std::size_t slack_kib;  // of resident private memory, above those
  std::size_t slack_descriptors = 0;
};

// In a test: expects that the job, of kCycleRanks ranks, goes through all of it.
void run_cycles(Job& job, const Cycles& cycles);

}  // namespace regroup::collective::testing
