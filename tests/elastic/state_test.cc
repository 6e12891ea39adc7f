// TrackedState loads what it has saved. The hand-over between processes is tested in tests/cli
// and tests/chaos.
#include "regroup/state.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace regroup::elastic {
namespace {

TEST(TrackedState, LoadsWhatItSavedAndRefusesAnotherLength) {
  std::vector<float> a(100), b(100);
  std::vector<int> a2(3), b2(3);
  std::iota(a.begin(), a.end(), 1.0F);
  std::iota(a2.begin(), a2.end(), 7);
  TrackedState from, to;
  from.track("a", std::span(a)), from.track("a2", std::span(a2));
  to.track("a", std::span(b)), to.track("a2", std::span(b2));
  EXPECT_EQ(from.capacity(), 412U);
  EXPECT_EQ(from.describe(), "a:400;a2:12");
  std::vector<std::byte> bytes;
  const auto pieces = from.save();
  for (const auto& piece : *pieces) bytes.insert(bytes.end(), piece.begin(), piece.end());
  ASSERT_TRUE(to.load(bytes).ok());
  EXPECT_EQ(a, b);
  EXPECT_EQ(a2, b2);
  EXPECT_EQ(to.load(std::span(bytes).first(411)).code(), base::Code::kInvalidArgument);
}

}  // namespace
}  // namespace regroup::elastic
