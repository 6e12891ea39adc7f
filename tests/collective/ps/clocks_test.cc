// Clocks of mode ssp: the pure functions. tests/model/ps_clock_model_test.cc has their
// interleavings.
#include "collective/ps/clocks.h"

#include <gtest/gtest.h>

#include <array>

namespace regroup::collective::ps::testing::clocks {
namespace {

using shmem::RealPolicy;
using Bell = shmem::Doorbell<RealPolicy>;

struct Words {
  std::array<ClockWord<RealPolicy>, 4> words{};
  std::array<Bell, 4> bells{};
  auto of() {
    return [this](std::uint32_t lane) -> auto& { return words[lane]; };
  }
  auto bell() {
    return [this](std::uint32_t lane) -> auto& { return bells[lane]; };
  }
};

TEST(PsClocks, TheSlowestOtherIsNamed) {
  Words w;
  EXPECT_EQ(slowest_other<RealPolicy>(w.of(), 4, 0), std::nullopt);
  w.words[0] = 3;
  EXPECT_EQ(slowest_other<RealPolicy>(w.of(), 4, 0), std::nullopt) << "its own does not count";
  w.words[2] = 6;
  w.words[3] = 5;
  w.words[1] = 5;
  EXPECT_EQ(slowest_other<RealPolicy>(w.of(), 4, 0), (SlowClient{1, 4}));
  EXPECT_EQ(slowest_other<RealPolicy>(w.of(), 4, 1), (SlowClient{0, 2}));
}

TEST(PsClocks, APullWaitsForClocksBelowItsOwnByMoreThanTheStaleness) {
  EXPECT_FALSE(is_too_far_ahead(0, 0, 0));
  EXPECT_TRUE(is_too_far_ahead(1, 0, 0));
  EXPECT_FALSE(is_too_far_ahead(3, 0, 3));
  EXPECT_TRUE(is_too_far_ahead(4, 0, 3));
  EXPECT_FALSE(is_too_far_ahead(4, 1, 3));
  EXPECT_FALSE(is_too_far_ahead(4, ~std::uint64_t{0}, 3));
  EXPECT_FALSE(is_too_far_ahead(4, 0, ~std::uint64_t{0})) << "no sum overflows";
}

TEST(PsClocks, AClockBeginsAtTheHighestAndEnds) {
  Words w;
  EXPECT_EQ(begin_clock<RealPolicy>(w.of(), 4, 1), 0U);
  count_clock<RealPolicy>(w.of(), w.bell(), 4, 1, 7);
  EXPECT_EQ(begin_clock<RealPolicy>(w.of(), 4, 3), 7U);
  EXPECT_EQ(w.words[3], 8U);
  end_clock<RealPolicy>(w.of(), w.bell(), 4, 1);
  EXPECT_EQ(w.words[1], 0U);
  EXPECT_EQ(slowest_other<RealPolicy>(w.of(), 4, 3), std::nullopt);
}

}  // namespace
}  // namespace regroup::collective::ps::testing::clocks
