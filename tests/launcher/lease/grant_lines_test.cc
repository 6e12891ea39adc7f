// The lines that `regroup join` and the controller exchange about agents, and lines that are
// refused.
#include "launcher/lease/grant_lines.h"

#include <gtest/gtest.h>

namespace regroup::lease {
namespace {

TEST(GrantLines, AnOfferNamesWhoStartsAgents) {
  LeaseOffer offer{.grant = {.by = "LSF job 8", .hosts = {{.name = "hX", .slots = 2}}},
                   .starts = true};
  EXPECT_TRUE(parse_offer(to_line(offer))->starts);
  offer.starts = false;
  EXPECT_FALSE(parse_offer(to_line(offer))->starts);
}

TEST(GrantLines, RefusesAHostWithTooManySlots) {
  const auto offer = [](const std::string& slots) {
    return parse_offer(R"({"hosts":[{"name":"hX","slots":)" + slots + "}]}");
  };
  EXPECT_EQ(offer("16384")->grant.hosts.at(0).slots, 16384U);
  EXPECT_EQ(offer("16385").status().message(),
            "LeaseOffer: expected at most 16384 slots on a host, got 16385");
  EXPECT_FALSE(offer("4294967298").ok());  // which is no 2
  EXPECT_FALSE(parse_revoke(R"({"recall":"","hosts":[{"name":"hX","slots":4294967298}]})").ok());
}

// Copies of a value go down into it by recursion.
TEST(GrantLines, RefusesDeeplyNestedLists) {
  const std::string deep = std::string(500'000, '[') + std::string(500'000, ']');
  const std::string host = R"(,"hosts":[{"name":"hX"}]})";
  EXPECT_FALSE(parse_offer(R"({"own":)" + deep + host).ok());
  EXPECT_TRUE(parse_offer(R"({"own":[[]])" + host).ok());
  EXPECT_FALSE(parse_reply(R"({"over":)" + deep + "}").ok());
}

TEST(GrantLines, AnOrderSurvivesARoundTrip) {
  AgentStart start;
  start.order = {.node = 7,
                 .host = "hX",
                 .program = "/bin/r",
                 .arguments = {"a", "", "b c\n"},
                 .wdir = "/w \"x\""};
  start.order.preferred = "/opt/r";
  start.secret = true;
  const auto out = parse_agent_start(to_line(start));
  ASSERT_TRUE(out.ok()) << out.status().message();
  EXPECT_EQ(out->order.node, 7U);
  EXPECT_EQ(out->order.host + out->order.program + out->order.preferred + out->order.wdir,
            "hX/bin/r/opt/r/w \"x\"");
  EXPECT_EQ(out->order.arguments, start.order.arguments);
  EXPECT_TRUE(out->secret);
  EXPECT_EQ(to_line(start).find('\n'), to_line(start).size() - 1);
  EXPECT_EQ(parse_agent_end(to_line(AgentEnd{9}))->node, 9U);
}

TEST(GrantLines, ReportsSurviveARoundTripAndArePrintable) {
  using What = AgentNews::What;
  EXPECT_EQ(parse_agent_news(to_line(AgentNews{.node = 3, .what = What::kUp}))->what, What::kUp);
  EXPECT_EQ(
      parse_agent_news(to_line(AgentNews{.node = 3, .what = What::kLine, .line = "a\x1b[m"}))->line,
      "a?[m");
  EXPECT_TRUE(parse_agent_news(to_line(AgentNews{.node = 3, .what = What::kEnded}))->why.ok());
  const auto ended = parse_agent_news(to_line(
      AgentNews{.node = 3, .what = What::kEnded, .why = {base::Code::kPeerLost, "hX: blaunch"}}));
  EXPECT_EQ(ended->node, 3U);
  EXPECT_EQ(ended->why.code(), base::Code::kPeerLost);
  EXPECT_EQ(ended->why.message(), "hX: blaunch");
}

TEST(GrantLines, RefusesLinesOfAnUnknownForm) {
  for (const char* line :
       {"", "{}", "7", R"({"start":-1,"host":"h","program":"p"})", R"({"start":1,"host":"h"})",
        R"({"start":4294967295,"host":"h","program":"p"})",
        R"({"start":"1","host":"h","program":"p"})"})
    EXPECT_FALSE(parse_agent_start(line).ok()) << line;
  for (const char* line : {"{}", R"({"end":null})", R"({"text":"over","over":true,"ok":true})"})
    EXPECT_FALSE(parse_agent_end(line).ok()) << line;
  for (const char* line :
       {"{}", R"({"agent":1})", R"({"agent":1,"is":"away"})", R"({"agent":1.5,"is":"up"})"})
    EXPECT_FALSE(parse_agent_news(line).ok()) << line;
  EXPECT_EQ(parse_agent_news(R"({"agent":1,"is":"ended","code":99})")->why.code(),
            base::Code::kInternal);
  EXPECT_FALSE(parse_revoke(to_line(AgentNews{.node = 3})).ok());
  EXPECT_FALSE(parse_agent_start(to_line(LeaseReply{"x", true, true})).ok());
}

}  // namespace
}  // namespace regroup::lease
