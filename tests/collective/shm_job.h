// The shared-memory backend for the conformance suite.
#pragma once

#include "tests/collective/job.h"

namespace regroup::collective::testing {

[[nodiscard]] std::unique_ptr<Job> make_shm_job(int ranks);
// Of which all that can goes by one copy of the kernel.
[[nodiscard]] std::unique_ptr<Job> make_single_copy_job(int ranks);

}  // namespace regroup::collective::testing
