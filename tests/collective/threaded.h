// The reference backend: ranks are threads, the last one that starts an operation computes all
// outputs from the definitions, under one lock. Slow, and simple enough to be right.
#pragma once

#include "tests/collective/job.h"

namespace regroup::collective::testing {

[[nodiscard]] std::unique_ptr<TestJob> make_threaded_job(int ranks);

}  // namespace regroup::collective::testing
