// What clients get of the stores of several hosts, and their status together.
#include "launcher/job/store_status.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/descriptor_message.h"

namespace regroup::job {
namespace {

using nlohmann::json;

TEST(Stores, MembersGetTheMemoryOfTheirHostAndTheGatewaysOfOthers) {
  const std::vector<StorePlace> stores{{"tcp,a,1", "/a"}, {"tcp,b,2", "/b"}, {"tcp,c,3", "/c"}};
  EXPECT_EQ(stores_text(stores, 0), "/a;tcp,b,2;tcp,c,3");
  EXPECT_EQ(stores_text(stores, 1), "tcp,a,1;/b;tcp,c,3");
  EXPECT_EQ(stores_text(stores, 7), "tcp,a,1;tcp,b,2;tcp,c,3") << "a host without a store";
  EXPECT_EQ(stores_text({{"tcp,a,1", "/a"}}, 0), "/a") << "of one store as ever";
  EXPECT_EQ(stores_text({{"tcp,a,1", "/a"}}, 1), "tcp,a,1");
}

TEST(Stores, MembersGetTheNumberOfCopiesIfThereAreSeveral) {
  const std::vector<StorePlace> stores{{"tcp,a,1", "/a"}, {"tcp,b,2", "/b"}};
  EXPECT_EQ(stores_text(stores, 0, 1), "/a;tcp,b,2");
  EXPECT_EQ(stores_text(stores, 1, 2), "tcp,a,1;/b;replicas=2");
}

json status_of(std::uint64_t view, std::uint64_t updates, const json& servers) {
  return {{"view", view},
          {"bytes", 100},
          {"store", {{"tables", 1}, {"free", 2}, {"log", 3}}},
          {"clients", view + 4},
          {"ranges", 8},
          {"ranges_waiting", 1},
          {"updates", updates},
          {"restarts", 2},
          {"servers", servers},
          {"moves", {{{"shard", 0}, {"from", 0}, {"to", 1}, {"why", "w"}}}},
          {"checkpoint", 0}};
}

json server(int number, int pid) { return {{"server", number}, {"pid", pid}}; }
json server(int number, int pid, const char* host) {
  return {{"server", number}, {"pid", pid}, {"host", host}};
}

std::string merged(const std::vector<StoreStatus>& stores) {
  return merged_status(stores, StoreReplicas(stores.size(), 1));
}

TEST(MergedStatus, NamesTheHostOfEachServerAndAddsUp) {
  json first = status_of(1, 10, json::array({server(0, 11)}));
  json second = status_of(3, 5, json::array({server(0, 22), server(1, 23)}));
  second["step"] = 7;
  first["checkpoint"] = 4;
  const json out = json::parse(merged({{"a", first.dump()}, {"b", second.dump()}}));
  EXPECT_EQ(out["servers"],
            json::array({server(0, 11, "a"), server(0, 22, "b"), server(1, 23, "b")}));
  EXPECT_EQ(out["updates"], 15);
  EXPECT_EQ(out["ranges"], 16);
  EXPECT_EQ(out["restarts"], 4);
  EXPECT_EQ(out["bytes"], 200);
  EXPECT_EQ(out["store"], (json{{"tables", 2}, {"free", 4}, {"log", 6}}));
  EXPECT_EQ(out["view"], 3);
  EXPECT_EQ(out["clients"], 7) << "each client is at all stores";
  EXPECT_EQ(out["step"], 7);
  EXPECT_EQ(out["checkpoint"], 4) << "the launcher's store knows it";
  EXPECT_EQ(out["stores"][1]["updates"], 5);
  EXPECT_EQ(out["moves"][1]["host"], "b");
  EXPECT_EQ(out["moves"][1]["view"], 3);
}

TEST(MergedStatus, SaysWhichStoresAreLostAndHowManyMoreMayBe) {
  const json own = status_of(1, 10, json::array());
  StoreReplicas replicas(3, 2);
  const auto lost = base::Status(base::peer_lost("host c: its copies of tables are lost"));
  std::vector<StoreStatus> stores{{"a", own.dump()}, {"b", own.dump()}, {"c", own.dump()}};
  json out = json::parse(merged_status(stores, replicas));
  EXPECT_EQ(out["replicas"], 2);
  EXPECT_EQ(out["may_be_lost"], 1);
  EXPECT_FALSE(out["stores"][2].contains("lost"));
  replicas.lose(2);
  stores[2] = {"c", lost, true};
  out = json::parse(merged_status(stores, replicas));
  EXPECT_EQ(out["may_be_lost"], 0);
  EXPECT_EQ(out["stores"][2], (json{{"host", "c"}, {"why", lost.message()}, {"lost", true}}));
  EXPECT_FALSE(json::parse(merged({{"a", own.dump()}})).contains("replicas"));
}

TEST(MergedStatus, AStoreThatDoesNotSayIsNamedAndTheRestIsShown) {
  const json own = status_of(1, 10, json::array());
  json strange = own;
  strange["updates"] = "many";
  const json out =
      json::parse(merged({{"a", own.dump()},
                          {"b", base::Status(base::deadline_exceeded("host b: no answer"))},
                          {"c", std::string("[")},
                          {"d", strange.dump()}}));
  EXPECT_EQ(out["updates"], 10);
  EXPECT_EQ(out["stores"][1]["why"], "host b: no answer");
  EXPECT_EQ(out["stores"][2]["why"], "host c: malformed status of its store");
  EXPECT_EQ(out["stores"][3]["why"], "host d: malformed status of its store");
}

// What `regroup status` reads of a list has the type that it expects, or it would abort.
TEST(MergedStatus, AStoreWithMalformedElementsIsNamedAndTheRestIsShown) {
  const json own = status_of(1, 10, json::array({server(0, 11)}));
  const json strange[] = {{{"servers", {{{"server", "x"}}}}},
                          {{"servers", {{{"server", 1}, {"tables", {{"t", 7}}}}}}},
                          {{"servers", {{{"server", 1}, {"still_seconds", "x"}}}}},
                          {{"servers", {7}}},
                          {{"servers", {{"server", {{"server", 0}}}}}},
                          {{"moves", {{{"shard", nullptr}}}}},
                          {{"moves", {{{"why", 7}}}}},
                          {{"clocks", {{{"clock", -1}}}}},
                          {{"clocks", {{{"clock", 1}, {"name", 7}}}}},
                          {{"clocks", "x"}},
                          {{"step_clients", {{{"leaves", 7}}}}},
                          {{"staleness", "x"}},
                          {{"turns_by_staleness", {"x"}}},
                          {{"step", {1}}}};
  for (const json& change : strange) {
    json other = own;
    other.update(change);
    const json out = json::parse(merged({{"a", own.dump()}, {"b", other.dump()}}));
    EXPECT_EQ(out["servers"], json::array({server(0, 11, "a")})) << change;
    ASSERT_EQ(out["stores"].size(), 2U) << change;
    EXPECT_EQ(out["stores"][1].value("why", ""), "host b: malformed status of its store") << change;
  }
}

TEST(MergedStatus, ShowsNoControlCharactersOfAnotherHost) {
  json one = server(0, 1);
  one["tables"] = {{"a\x1b[2J", "0"}};
  one["x"] = "\x07";
  const json bad = status_of(1, 1, json::array({one}));
  EXPECT_EQ(merged({{"a", bad.dump()}}).find("\\u001b"), std::string::npos);
  EXPECT_EQ(merged({{"a", bad.dump()}}).find("\\u0007"), std::string::npos);
}

TEST(MergedStatus, FitsIntoAMessage) {
  json servers = json::array();
  for (int i = 0; i < 500; ++i)
    servers.push_back({{"server", i}, {"tables", {{std::string(200, 't'), "0-99"}}}});
  const std::string text = merged({{"a", status_of(1, 1, servers).dump()}});
  EXPECT_LT(text.size(), base::kMostDescriptorText);
  EXPECT_EQ(json::parse(text)["servers"].size(), 500U);
}

}  // namespace
}  // namespace regroup::job
