// Which rank runs where, in the words of PMIx and of MPICH.
#include "tools/pmi/layout.h"

#include <gtest/gtest.h>

namespace regroup::pmi {
namespace {

using Ranks = std::vector<std::uint32_t>;

OpenSpace on_hosts(Ranks host_of, std::uint32_t here) {
  OpenSpace space;
  space.app_sizes = {static_cast<std::uint32_t>(host_of.size())};
  space.hosts = {"a", "b", "c"};
  space.host_of = std::move(host_of);
  space.host = here;
  return space;
}

TEST(Layout, OneHostHasAllRanksUnderItsOwnName) {
  OpenSpace space;
  space.app_sizes = {2, 1};
  const Layout layout(space, "me");
  ASSERT_EQ(layout.hosts().size(), 1U);
  EXPECT_EQ(layout.host_of(2).name, "me");
  EXPECT_EQ(layout.here(), (Ranks{0, 1, 2}));
  EXPECT_EQ(layout.local_rank(2), 2U);
  EXPECT_EQ(layout.mapping(), "(vector,(0,1,3))");
}

TEST(Layout, RanksOnSeveralHostsCountWithinTheirs) {
  const Layout layout(on_hosts({1, 1, 2, 1, 2}, 2), "");
  ASSERT_EQ(layout.hosts().size(), 2U);
  EXPECT_EQ(layout.hosts()[0].name, "b");
  EXPECT_EQ(layout.hosts()[0].ranks, (Ranks{0, 1, 3}));
  EXPECT_EQ(layout.here(), (Ranks{2, 4}));
  EXPECT_EQ(layout.local_rank(3), 2U);
  EXPECT_EQ(layout.local_rank(4), 1U);
  EXPECT_EQ(layout.host_of(4).number, 2U);
}

TEST(Layout, MappingBlocksHostsWithEquallyManyRanks) {
  EXPECT_EQ(Layout(on_hosts({0, 0, 1, 1, 2}, 0), "").mapping(), "(vector,(0,2,2),(2,1,1))");
  EXPECT_EQ(Layout(on_hosts({0, 1, 2, 0, 1, 2}, 0), "").mapping(), "(vector,(0,3,1),(0,3,1))");
}

TEST(Layout, AHostWithoutRanksHasNone) {
  EXPECT_TRUE(Layout(on_hosts({1, 2}, 0), "").here().empty());
}

}  // namespace
}  // namespace regroup::pmi
