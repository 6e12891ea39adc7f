// NodeContacts: a node's addresses are complete, or not sent.
#include "membership/agent/node_contacts.h"

#include <gtest/gtest.h>

namespace regroup::membership {
namespace {

proto::Contacts own(proto::Generation g, proto::MemberId id, int address) {
  return {g, {{id, {static_cast<std::byte>(address)}}}};
}

// Members 0 and 2 are on node 1, member 1 is on node 2.
proto::World world(proto::Generation g) {
  return {.generation = g,
          .members = {{.id = 0, .slot_id = {1, 0}},
                      {.id = 1, .slot_id = {2, 0}},
                      {.id = 2, .slot_id = {1, 1}}}};
}

TEST(NodeContacts, AreCompleteWhenAllMembersOfTheNodeHavePublished) {
  NodeContacts contacts;
  EXPECT_FALSE(contacts.complete());
  contacts.begin(world(3), 1);
  EXPECT_FALSE(contacts.add(2, own(3, 2, 20)));
  EXPECT_FALSE(contacts.complete());
  EXPECT_TRUE(contacts.add(0, own(3, 0, 10)));
  const proto::Contacts all{3, {{2, {std::byte{20}}}, {0, {std::byte{10}}}}};
  EXPECT_EQ(contacts.complete(), all);
}

TEST(NodeContacts, AChangeIsNewAndARepetitionIsNot) {
  NodeContacts contacts;
  contacts.begin(world(3), 2);
  EXPECT_TRUE(contacts.add(1, own(3, 1, 10)));
  EXPECT_FALSE(contacts.add(1, own(3, 1, 10)));
  EXPECT_TRUE(contacts.add(1, own(3, 1, 11)));
  EXPECT_EQ(contacts.complete(), own(3, 1, 11));
}

TEST(NodeContacts, ThoseOfOtherGenerationsAndMembersAreIgnored) {
  NodeContacts contacts;
  contacts.begin(world(3), 2);
  EXPECT_FALSE(contacts.add(1, own(2, 1, 10)));
  EXPECT_FALSE(contacts.add(0, own(3, 0, 10))) << "member 0 is on another node";
  EXPECT_FALSE(contacts.add(1, {3, {{1, {}}, {0, {}}}})) << "a member has one address";
  EXPECT_FALSE(contacts.complete());
  EXPECT_TRUE(contacts.add(1, own(3, 0, 10)));
  EXPECT_EQ(contacts.complete(), own(3, 1, 10)) << "who has sent it counts, not what it says";
  contacts.begin(world(4), 2);
  EXPECT_FALSE(contacts.complete());
  contacts.begin(world(5), 9);
  EXPECT_FALSE(contacts.complete()) << "no member is on node 9";
}

}  // namespace
}  // namespace regroup::membership
