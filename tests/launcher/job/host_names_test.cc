// What a name server says is added to what is known without one.
#include "launcher/job/host_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace regroup::job {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

TEST(HostNames, OnlyNamesThatNobodyKnowsAreAskedFor) {
  const spec::HostNames known{{"here.site", "10.0.0.1", "login"}, {{"n7", "10.0.0.7"}}};
  EXPECT_THAT(unknown_names(
                  {"here", "LOGIN", "localhost", "n7", "10.0.0.8", "fe80::1", "127.0.0.1"}, known),
              IsEmpty());
  EXPECT_THAT(unknown_names({"gpu1", "GPU1", "gpu2.site", "gpu1."}, known),
              ElementsAre("gpu1", "gpu2.site"));
}

TEST(HostNames, ANameWithAnAddressOfThisHostIsItsOwn) {
  spec::HostNames known{{"here", "10.0.0.1"}, {}};
  add_answers({"front", "loop", "other"},
              {{"front.site", {"10.9.9.9", "10.0.0.1"}}, {"loop", {"127.0.1.1"}}, {"", {}}}, known);
  EXPECT_THAT(known.own, ElementsAre("here", "10.0.0.1", "front", "loop"));
  EXPECT_THAT(known.aliases, IsEmpty());
}

TEST(HostNames, AnAliasLeadsToItsHost) {
  spec::HostNames known{{"here"}, {{"n7.site", "10.0.0.7"}}};
  add_answers({"login", "n8", "gate"},
              {{"n9.site", {"10.0.0.9"}}, {"n8.site", {"10.0.0.8"}}, {"n7.site", {"10.0.0.7"}}},
              known);
  EXPECT_THAT(known.aliases, ElementsAre(Pair("gate", "10.0.0.7"), Pair("login", "n9.site"),
                                         Pair("n7.site", "10.0.0.7")));
}

// As a wildcard record gives all names of a domain the same.
TEST(HostNames, NamesWithOneAddressStayTwoHosts) {
  spec::HostNames known{{"here"}, {}};
  add_answers({"a", "b"}, {{"a.site", {"10.0.0.5"}}, {"b.site", {"10.0.0.5"}}}, known);
  EXPECT_THAT(known.aliases, IsEmpty());
}

}  // namespace
}  // namespace regroup::job
