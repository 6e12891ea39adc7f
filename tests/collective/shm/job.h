// The shared-memory backend for the conformance suite.
#pragma once

#include "tests/collective/job.h"

namespace regroup::collective::testing {

[[nodiscard]] std::unique_ptr<TestJob> make_shm_job(int ranks);
// Every operation that can uses the kernel's single copy between processes.
[[nodiscard]] std::unique_ptr<TestJob> make_single_copy_job(int ranks);

}  // namespace regroup::collective::testing
