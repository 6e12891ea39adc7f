// NodeIds: a host that comes back has another id.
#include "launcher/agent/node_ids.h"

#include <gtest/gtest.h>

namespace regroup::agent {
namespace {

TEST(NodeIds, AReturningHostGetsANewId) {
  NodeIds ids;
  EXPECT_EQ(ids.assign(0), 1U);
  EXPECT_EQ(ids.assign(1), 2U);
  EXPECT_EQ(ids.host_of(1), 0U);
  EXPECT_EQ(ids.assign(0), 3U);
  EXPECT_EQ(ids.id(0), 3U);
  EXPECT_EQ(ids.host_of(3), 0U);
  EXPECT_FALSE(ids.host_of(1));
  EXPECT_EQ(ids.host_of(2), 1U);
  EXPECT_EQ(ids.assign(2), 4U);
  EXPECT_EQ(ids.host_of(4), 2U);
}

TEST(NodeIds, TheControllerAndUnknownIdsAreNoHost) {
  NodeIds ids;
  EXPECT_FALSE(ids.host_of(kController));
  EXPECT_FALSE(ids.host_of(1));
  (void)ids.assign(0);
  EXPECT_FALSE(ids.host_of(kController));
  EXPECT_FALSE(ids.host_of(2));
}

}  // namespace
}  // namespace regroup::agent
