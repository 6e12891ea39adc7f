// How stores of other hosts start, answer and end.
#include "launcher/job/stores.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/job/table_checkpoints.h"
#include "tests/launcher/transport/net_test.h"

namespace regroup::job {
namespace {

using nlohmann::json;

constexpr const char* kStatus =
    R"({"view": 1, "bytes": 1, "store": {"tables": 1, "free": 1, "log": 1}, "clients": 1,
        "ranges": 1, "ranges_waiting": 0, "updates": 10, "restarts": 0, "servers": [],
        "moves": []})";

// Two other stores, whose agents answer when the test says so.
class OtherStoresTest : public testing::Test {
 protected:
  OtherStoresTest() {
    std::vector<OtherStore> doors;
    for (const char* const host : {"b", "c"}) {
      const std::size_t at = doors.size();
      doors.push_back({host,
                       [this, at](const agent::StartStore& order, auto started, auto failed) {
                         orders_[at] = order;
                         started_[at] = std::move(started);
                         failed_[at] = std::move(failed);
                       },
                       [this, at](agent::QueryStore query, auto then) {
                         queries_[at] = query;
                         then_[at] = std::move(then);
                       }});
    }
    stores_ = std::make_unique<OtherStores>(
        loop_, "a", std::move(doors),
        OtherStores::Events{[this](const base::Status& status) { result_ = status; },
                            [this](std::size_t store, const std::string& why) {
                              failed_store_ = store;
                              why_ = why;
                            }},
        2, std::chrono::milliseconds(20));
  }
  void start(base::Duration limit = std::chrono::seconds(60)) {
    agent::StartStore order;
    order.servers = 5;
    stores_->start(order, {"10.0.0.1", "10.0.0.2", "10.0.0.3"}, limit);
  }

  boost::asio::io_context loop_;
  std::unique_ptr<OtherStores> stores_;
  agent::StartStore orders_[2];
  agent::QueryStore queries_[2];
  std::function<void(const agent::StoreStarted&)> started_[2];
  std::function<void(const std::string&)> failed_[2];
  std::function<void(base::Result<std::string>)> then_[2];
  std::optional<base::Status> result_;
  std::optional<std::string> why_;
  std::size_t failed_store_ = 0;
};

TEST_F(OtherStoresTest, MembersStartOnceAllStoresServe) {
  start();
  EXPECT_EQ(orders_[1].store, 2U);
  EXPECT_EQ(orders_[1].stores, 3U);
  EXPECT_EQ(orders_[1].servers, 5U);
  EXPECT_EQ(orders_[1].address, "10.0.0.3");
  started_[1]({{}, "tcp,c", "/c", 3});
  EXPECT_FALSE(result_);
  started_[0]({{}, "tcp,b", "/b", 4});
  ASSERT_TRUE(result_ && result_->ok());
  EXPECT_EQ(stores_->version_at_start(), 7U);
  EXPECT_EQ(stores_->places()[0].address, "tcp,b");
  EXPECT_EQ(stores_->places()[1].socket, "/c");
  failed_[1]("host c: it ends");
  EXPECT_EQ(why_, "host c: it ends");
  EXPECT_EQ(failed_store_, 2U);
}

TEST_F(OtherStoresTest, ALostOneEndsBeforeTheOthersAreTold) {
  using Lost = std::vector<std::uint32_t>;
  Lost own;
  stores_->lose(1, [&](const Lost& lost) { own = lost; });
  EXPECT_EQ(queries_[0].lost, Lost{1});
  EXPECT_TRUE(own.empty() && queries_[1].lost.empty()) << "it may answer clients yet";
  then_[0](base::Status(base::unavailable("host b: its agent is not running")));
  EXPECT_TRUE(own.empty() && queries_[1].lost.empty()) << "its agent may not know that it is lost";
  ASSERT_TRUE(transport::run_until(
      loop_, [&] { return !own.empty(); }, std::chrono::seconds(60)));
  EXPECT_EQ(own, Lost{1});
  EXPECT_EQ(queries_[1].lost, Lost{1});
  then_[1](std::string());
  EXPECT_FALSE(why_);
  stores_->lose(2, [&](const Lost& lost) { own = lost; });
  EXPECT_EQ(queries_[1].lost, Lost{2});
  then_[1](std::string());
  EXPECT_EQ(own, (Lost{1, 2}));
  EXPECT_EQ(stores_->replicas().without_copy(), std::vector<std::size_t>{1});
}

TEST_F(OtherStoresTest, OneThatStillAnswersIsNotNamedWithAnother) {
  using Lost = std::vector<std::uint32_t>;
  std::vector<Lost> told;
  stores_->lose(1, [&](const Lost& lost) { told.push_back(lost); });
  stores_->lose(2, [&](const Lost& lost) { told.push_back(lost); });
  then_[1](std::string());
  EXPECT_EQ(told, (std::vector<Lost>{{2}}));
  then_[0](std::string());
  EXPECT_EQ(told, (std::vector<Lost>{{2}, {2, 1}}));
}

TEST_F(OtherStoresTest, OneThatCannotBeToldIsLostToo) {
  stores_->lose(1, [](const auto&) {});
  then_[0](std::string());
  then_[1](base::Status(base::peer_lost("host c: no heartbeat")));
  EXPECT_EQ(failed_store_, 2U);
  EXPECT_EQ(why_, "host c: no heartbeat");
}

TEST_F(OtherStoresTest, ALostOneIsNamedAndNotAsked) {
  stores_->lose(1, [](const auto&) {});
  queries_[0] = {};
  std::optional<std::string> status;
  stores_->status(kStatus, [&](const std::string& text) { status = text; });
  then_[1](std::string(kStatus));
  ASSERT_TRUE(status);
  const json shown = json::parse(*status);
  EXPECT_EQ(shown["stores"][1]["why"], "host b: its copies of tables are lost");
  EXPECT_EQ(shown["stores"][1]["lost"], true);
  EXPECT_EQ(shown["may_be_lost"], 0);
  std::optional<base::Result<std::string>> done;
  stores_->resize(5, [&](const base::Result<std::string>& said) { done = said; });
  EXPECT_EQ(queries_[1].servers, 5U);
  then_[1](std::string("ok"));
  ASSERT_TRUE(done && done->ok());
  EXPECT_EQ(**done, "parameter server: 3 servers on 2 hosts");
}

TEST_F(OtherStoresTest, OneThatCannotStartEndsTheStart) {
  start();
  started_[1]({base::resource_exhausted("host c: no memory"), {}, {}});
  ASSERT_TRUE(result_);
  EXPECT_EQ(result_->message(), "host c: no memory");
  result_.reset();
  started_[0]({{}, "tcp,b", "/b"});
  EXPECT_FALSE(result_) << "said once";
}

TEST_F(OtherStoresTest, OneThatSaysNothingIsNamed) {
  start(std::chrono::milliseconds(20));
  started_[0]({{}, "tcp,b", "/b"});
  ASSERT_TRUE(transport::run_until(
      loop_, [&] { return result_.has_value(); }, std::chrono::seconds(60)));
  EXPECT_EQ(result_->message(),
            "host c: its part of the parameter server has not started within 0.02 s");
}

TEST_F(OtherStoresTest, AnAddressThatWouldBeTwoIsRefused) {
  start();
  started_[0]({{}, "tcp,b;tcp,x", "/b"});
  ASSERT_TRUE(result_);
  EXPECT_EQ(result_->message(), "host b: malformed address of its store");
}

TEST_F(OtherStoresTest, ACheckpointHasThePartsOfAllOrSaysWhichOneFailed) {
  start();
  std::optional<base::Result<std::uint64_t>> saved;
  const auto save = [&] {
    saved.reset();
    stores_->save([](std::size_t store) { return "{\"writer\":" + std::to_string(store) + "}"; },
                  [&](const base::Result<std::uint64_t>& sum) { saved = sum; });
  };
  save();
  EXPECT_EQ(queries_[0].save, "{\"writer\":1}");
  EXPECT_EQ(queries_[1].save, "{\"writer\":2}");
  then_[1](std::string("40"));
  EXPECT_FALSE(saved) << "no limit while the agent lives";
  then_[0](std::string("2"));
  ASSERT_TRUE(saved && saved->ok());
  EXPECT_EQ(**saved, 42U);
  save();
  then_[1](base::unavailable("host c: its disk is full"));
  EXPECT_FALSE(saved) << "others write yet";
  then_[0](std::string("2"));
  ASSERT_TRUE(saved);
  EXPECT_EQ(saved->status().message(), "host c: its disk is full");
  save();
  then_[0](std::string(""));
  then_[1](std::string("2"));
  EXPECT_EQ(saved->status().message(), "host b: malformed answer of its store");
}

TEST_F(OtherStoresTest, TheVersionIsThatOfAllOrOfNone) {
  start();
  std::optional<std::optional<std::uint64_t>> version;
  const auto ask = [&] {
    version.reset();
    stores_->version([&](std::optional<std::uint64_t> sum) { version = sum; });
  };
  ask();
  then_[0](std::string(kStatus));
  then_[1](std::string(kStatus));
  EXPECT_EQ(version, std::optional(std::uint64_t{22}));
  ask();
  then_[0](std::string(kStatus));
  then_[1](base::unavailable("it still starts"));
  ASSERT_TRUE(version);
  EXPECT_EQ(*version, std::nullopt);
}

TEST_F(OtherStoresTest, TheStatusHasAllStoresOrSaysWhichOneIsSilent) {
  std::optional<std::string> status;
  const std::string one = kStatus;
  const auto get = [&] { stores_->status(one, [&](const std::string& text) { status = text; }); };
  get();
  EXPECT_EQ(queries_[0].servers, 0U);
  then_[0](one);
  EXPECT_FALSE(status);
  then_[1](one);
  ASSERT_TRUE(status);
  EXPECT_EQ(json::parse(*status)["updates"], 30);
  status.reset();
  get();
  then_[0](one);
  ASSERT_TRUE(transport::run_until(
      loop_, [&] { return status.has_value(); }, std::chrono::seconds(60)));
  EXPECT_EQ(json::parse(*status)["stores"][2]["why"], "host c: no answer within 2 s");
  then_[1](one);  // late: nobody waits
  stores_.reset();
}

TEST_F(OtherStoresTest, ResizeIsSaidOnceAllHaveTheirShare) {
  std::optional<base::Result<std::string>> done;
  const auto resize = [&] {
    done.reset();
    stores_->resize(5, [&](const base::Result<std::string>& said) { done = said; });
  };
  resize();
  EXPECT_EQ(queries_[1].servers, 5U);
  then_[1](std::string("ok"));
  then_[0](std::string("ok"));
  ASSERT_TRUE(done);
  EXPECT_EQ(**done, "parameter server: 5 servers on 3 hosts");
  resize();
  then_[1](std::string("ok"));
  then_[0](base::Status(base::unavailable("host b: its store still starts")));
  ASSERT_TRUE(done);
  EXPECT_EQ(done->status().message(), "resize ps=5: host b: its store still starts");
}

// An interrupted job ends when its checkpoints need no more time.
TEST(TableCheckpoints, NeedTimeAtTheEndUntilOtherStoresSayThatNothingHasChanged) {
  boost::asio::io_context loop;
  std::function<void(std::optional<std::uint64_t>)> answer;
  TableCheckpointOptions options;
  options.plan.every = 1;
  options.part = {.number = 0, .of = 2, .shards = 2};
  TableCheckpoints::Events events{[](const std::string&) {}, [] { return std::uint64_t{5}; }};
  events.others.save = [](const auto&, const auto&) { FAIL() << "nothing has changed"; };
  events.others.version = [&](auto then) { answer = std::move(then); };
  TableCheckpoints checkpoints(loop, std::move(options), std::move(events));
  EXPECT_FALSE(checkpoints.ready()) << "others load their tables yet";
  checkpoints.others_began(7);
  EXPECT_TRUE(checkpoints.ready());
  bool over = false;
  checkpoints.finish([&] { over = true; });
  ASSERT_TRUE(answer);
  EXPECT_FALSE(over);
  EXPECT_GT(checkpoints.still_needs(), base::Duration::zero());
  answer(7);
  EXPECT_TRUE(over);
  EXPECT_EQ(checkpoints.still_needs(), base::Duration::zero());
  EXPECT_EQ(checkpoints.unsaved(), "");
}

TEST(TableCheckpoints, SaveNothingOnceTheHostOfAStoreIsLost) {
  boost::asio::io_context loop;
  TableCheckpointOptions options;
  options.plan.every = 1;
  options.part = {.number = 0, .of = 2, .shards = 2};
  TableCheckpoints::Events events{[](const std::string&) {}, [] { return std::uint64_t{5}; }};
  events.others.save = [](const auto&, const auto&) { FAIL() << "a store is lost"; };
  events.others.version = [](const auto&) { FAIL() << "a store is lost"; };
  TableCheckpoints checkpoints(loop, std::move(options), std::move(events));
  checkpoints.others_began(7);
  checkpoints.on_lost(base::unavailable("host b is lost"));
  bool over = false;
  checkpoints.finish([&] { over = true; });
  EXPECT_TRUE(over);
  EXPECT_EQ(checkpoints.unsaved(), "the tables are not saved: host b is lost");
}

// regroup-persist is a script, which dies when it should join parts.
TEST(TableCheckpoints, RemoveThePartsOfAJoinThatDies) {
  std::string folder = (std::filesystem::temp_directory_path() / "join-dies-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string program = folder + "/persist", told = folder + "/told";
  std::ofstream(program) << "#!/bin/sh\nread text\n[ $1 = save-tables ] && echo 1 && exit\n"
                         << "echo \"$text\" >> " << told << "\n"
                         << "case $text in *'\"commit\":true'*) kill -9 $$ ;; esac\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  boost::asio::io_context loop;
  TableCheckpointOptions options;
  options.plan.every = 1;
  options.program = program;
  options.part = {.number = 0, .of = 2, .shards = 2};
  TableCheckpoints::Events events{[](const std::string&) {}, [] { return std::uint64_t{5}; }};
  events.others.save = [](const auto&, const auto& then) { then(std::uint64_t{7}); };
  TableCheckpoints checkpoints(loop, std::move(options), std::move(events));
  checkpoints.others_began(7);
  std::optional<base::Result<std::string>> saved;
  checkpoints.save([&](const base::Result<std::string>& answer) { saved = answer; });
  ASSERT_TRUE(transport::run_until(
      loop, [&] { return saved.has_value(); }, std::chrono::seconds(60)));
  EXPECT_EQ(saved->status().message(), "regroup-persist: killed by signal 9");
  std::ifstream file(told);
  std::vector<bool> commits;
  for (std::string line; std::getline(file, line);)
    commits.push_back(json::parse(line)["commit"].get<bool>());
  EXPECT_EQ(commits, (std::vector<bool>{true, false}));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace regroup::job
