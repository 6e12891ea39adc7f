// How fast the device kernels are, beside a copy in the device's memory in the same minute.
#pragma once

#include <random>

#include "tests/gpu/report.h"

namespace regroup::gpu {

struct TimesOptions {
  bool quick = false;           // few sizes, for a try without a GPU
  std::size_t arena_bytes = 0;  // of inputs; 0: as the device's memory allows
};

// Rows of copies, of the tree kernel with 2, 4, 8 and 16 inputs and of the harvest. Each kernel's
// bits are compared before its time is measured; what is wrong counts in the report. What
// the report has no time for is left out, with a row.
void measure_times(Report& report, const TimesOptions& options, std::mt19937_64& random);

}  // namespace regroup::gpu
