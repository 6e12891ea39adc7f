// The ucx backend passes the conformance suite, on one machine over TCP: with one rank on each
// host, with two, and with different numbers of ranks that are not contiguous.
#include "tests/collective/conformance.h"
#include "tests/collective/ucx/job.h"

namespace regroup::collective::testing::ucx_conformance {
namespace {

constexpr Backend kApart{"UcxApart", true, make_ucx_apart, true};
constexpr Backend kPairs{"UcxPairs", true, make_ucx_pairs, true};
constexpr Backend kUneven{"UcxUneven", true, make_ucx_uneven, true};
INSTANTIATE_TEST_SUITE_P(UcxApart, Conformance, ::testing::ValuesIn(sizes_of(kApart)),
                         name_of_setting);
INSTANTIATE_TEST_SUITE_P(UcxApart, Sums, ::testing::ValuesIn(sizes_to_nine_of(kApart)),
                         name_of_setting);
INSTANTIATE_TEST_SUITE_P(UcxApart, Failures, ::testing::Values(Setting{kApart, 4}),
                         name_of_setting);
INSTANTIATE_TEST_SUITE_P(UcxPairs, Conformance, ::testing::ValuesIn(sizes_of(kPairs)),
                         name_of_setting);
INSTANTIATE_TEST_SUITE_P(UcxPairs, Failures, ::testing::Values(Setting{kPairs, 4}),
                         name_of_setting);
INSTANTIATE_TEST_SUITE_P(UcxUneven, Conformance, ::testing::ValuesIn(sizes_of(kUneven)),
                         name_of_setting);
INSTANTIATE_TEST_SUITE_P(UcxUneven, Sums, ::testing::ValuesIn(sizes_to_nine_of(kUneven)),
                         name_of_setting);
INSTANTIATE_TEST_SUITE_P(UcxUneven, Failures, ::testing::Values(Setting{kUneven, 4}),
                         name_of_setting);

}  // namespace
}  // namespace regroup::collective::testing::ucx_conformance
