// The backends that pass the conformance suite.
#include "tests/collective/conformance.h"
#include "tests/collective/shm/job.h"
#include "tests/collective/threaded.h"

namespace regroup::collective::testing::backend_rows {
namespace {

constexpr Backend kReference{"Reference", false, make_threaded_job};
constexpr Backend kShmThreads{"ShmThreads", false, make_shm_job};
INSTANTIATE_TEST_SUITE_P(Reference, Conformance, ::testing::ValuesIn(sizes_of(kReference)),
                         name_of_setting);
INSTANTIATE_TEST_SUITE_P(Reference, Sums, ::testing::ValuesIn(sizes_to_nine_of(kReference)),
                         name_of_setting);
INSTANTIATE_TEST_SUITE_P(Reference, Failures, ::testing::Values(Setting{kReference, 4}),
                         name_of_setting);
INSTANTIATE_TEST_SUITE_P(ShmThreads, Conformance, ::testing::ValuesIn(sizes_of(kShmThreads)),
                         name_of_setting);
INSTANTIATE_TEST_SUITE_P(ShmThreads, Sums, ::testing::ValuesIn(sizes_to_nine_of(kShmThreads)),
                         name_of_setting);
INSTANTIATE_TEST_SUITE_P(ShmThreads, Failures, ::testing::Values(Setting{kShmThreads, 4}),
                         name_of_setting);
constexpr Backend kSingleCopyThreads{"SingleCopyThreads", false, make_single_copy_job};
INSTANTIATE_TEST_SUITE_P(SingleCopyThreads, Conformance,
                         ::testing::ValuesIn(sizes_of(kSingleCopyThreads)), name_of_setting);
INSTANTIATE_TEST_SUITE_P(SingleCopyThreads, Failures,
                         ::testing::Values(Setting{kSingleCopyThreads, 4}), name_of_setting);

#ifndef __SANITIZE_THREAD__  // sees no race between processes
constexpr Backend kShmProcesses{"ShmProcesses", true, make_shm_job};
INSTANTIATE_TEST_SUITE_P(ShmProcesses, Conformance, ::testing::ValuesIn(sizes_of(kShmProcesses)),
                         name_of_setting);
INSTANTIATE_TEST_SUITE_P(ShmProcesses, Sums, ::testing::ValuesIn(sizes_to_nine_of(kShmProcesses)),
                         name_of_setting);
INSTANTIATE_TEST_SUITE_P(ShmProcesses, Failures, ::testing::Values(Setting{kShmProcesses, 4}),
                         name_of_setting);
constexpr Backend kSingleCopyProcesses{"SingleCopyProcesses", true, make_single_copy_job};
INSTANTIATE_TEST_SUITE_P(SingleCopyProcesses, Conformance,
                         ::testing::ValuesIn(sizes_of(kSingleCopyProcesses)), name_of_setting);
INSTANTIATE_TEST_SUITE_P(SingleCopyProcesses, Failures,
                         ::testing::Values(Setting{kSingleCopyProcesses, 4}), name_of_setting);
#endif

}  // namespace
}  // namespace regroup::collective::testing::backend_rows
