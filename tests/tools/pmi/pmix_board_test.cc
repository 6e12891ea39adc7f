// Publishes and looks up as PMIx clients do, with the real libpmix.
#include "tools/pmi/pmix_board.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <thread>

namespace regroup::pmi {
namespace {

struct PmixBoardTest : testing::Test {
  boost::asio::io_context loop;
  std::optional<PmixLibrary> library;
  std::optional<PmixBoard> board;
  std::vector<std::pair<std::string, pmix_status_t>> found;  // by whom

  void SetUp() override {
    auto loaded = PmixLibrary::load("libpmix.so.2");
    if (!loaded.ok()) GTEST_SKIP() << loaded.status().message();
    library = *loaded;
    board.emplace(loop, *library);
  }

  void wait_for(const char* space, pmix_rank_t rank, const std::string& key,
                std::uint32_t seconds = 0) {
    InfoList infos(*library);
    infos.add(PMIX_WAIT, 0U);
    infos.add(PMIX_TIMEOUT, seconds);
    const std::string who = std::string(space) + "." + std::to_string(rank);
    board->lookup(make_proc(space, rank), {key}, infos.data(), infos.size(),
                  [this, who](pmix_status_t status, std::vector<pmix_pdata_t>&) {
                    found.emplace_back(who, status);
                  });
  }

  void publish_once(const std::string& key) {
    InfoList infos(*library);
    infos.add(key.c_str(), std::string("port"));
    pmix_info_t persistence{};
    pmix_persistence_t once = PMIX_PERSIST_FIRST_READ;
    library->Info_load(&persistence, PMIX_PERSISTENCE, &once, PMIX_PERSIST);
    std::vector<pmix_info_t> both{infos.data()[0], persistence};
    EXPECT_EQ(board->publish(make_proc("a", 0), both.data(), both.size()), PMIX_SUCCESS);
  }
};

// A value that may be read once goes to a living process.
TEST_F(PmixBoardTest, TheDeadWaitForNothing) {
  using Pair = std::pair<std::string, pmix_status_t>;
  wait_for("a", 1, "key");
  wait_for("b", 0, "key");
  wait_for("a", 2, "key");
  wait_for("a", 3, "key");
  board->forget(make_proc("a", 1));
  board->forget(make_proc("b", PMIX_RANK_WILDCARD));
  EXPECT_THAT(found, testing::ElementsAre(Pair("a.1", PMIX_ERR_LOST_CONNECTION),
                                          Pair("b.0", PMIX_ERR_LOST_CONNECTION)));
  publish_once("key");
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found.back(), Pair("a.2", PMIX_SUCCESS));
  publish_once("key");
  EXPECT_EQ(found.back(), Pair("a.3", PMIX_SUCCESS));
}

// A waiter's timeout has expired but is not handled yet when its value arrives.
TEST_F(PmixBoardTest, AWaiterServedAtTheLastMomentIsAnsweredOnce) {
  boost::asio::steady_timer before(loop, std::chrono::milliseconds(500));
  before.async_wait([this](const boost::system::error_code&) { publish_once("key"); });
  wait_for("a", 1, "key", 1);
  wait_for("a", 2, "other", 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  loop.run();  // both are due, the timer above first
  using Pair = std::pair<std::string, pmix_status_t>;
  EXPECT_THAT(found,
              testing::ElementsAre(Pair("a.1", PMIX_SUCCESS), Pair("a.2", PMIX_ERR_TIMEOUT)));
}

TEST_F(PmixBoardTest, AKeyThatIsLookedUpTwiceIsRemovedOnce) {
  publish_once("key");
  std::size_t values = 0;
  const auto count = [&values](pmix_status_t status, std::vector<pmix_pdata_t>& found) {
    EXPECT_EQ(status, PMIX_SUCCESS);
    values = found.size();
  };
  board->lookup(make_proc("a", 1), {"key", "key"}, nullptr, 0, count);
  EXPECT_EQ(values, 2U);
  publish_once("key");  // it was removed
}

TEST_F(PmixBoardTest, AKeyIsNotPublishedTwiceInOneCall) {
  InfoList infos(*library);
  infos.add("key", std::string("port"));
  infos.add("key", std::string("other"));
  EXPECT_EQ(board->publish(make_proc("a", 0), infos.data(), 2), PMIX_ERR_DUPLICATE_KEY);
  EXPECT_EQ(board->publish(make_proc("a", 0), infos.data(), 1), PMIX_SUCCESS);
}

TEST_F(PmixBoardTest, NamesOfAClosedSpaceAreRemoved) {
  InfoList infos(*library);
  infos.add("key", std::string("port"));
  infos.add("other", std::string("port"));
  EXPECT_EQ(board->publish(make_proc("a", 0), infos.data(), 1), PMIX_SUCCESS);
  EXPECT_EQ(board->publish(make_proc("b", 0), infos.data() + 1, 1), PMIX_SUCCESS);
  using Pair = std::pair<std::string, pmix_status_t>;
  wait_for("a", 1, "none");
  board->close("a");
  EXPECT_THAT(found, testing::ElementsAre(Pair("a.1", PMIX_ERR_LOST_CONNECTION)));
  EXPECT_EQ(board->publish(make_proc("c", 0), infos.data(), 1), PMIX_SUCCESS);
  EXPECT_EQ(board->publish(make_proc("c", 0), infos.data() + 1, 1), PMIX_ERR_DUPLICATE_KEY);
}

TEST_F(PmixBoardTest, AnotherHostHoldsNoMoreThanItMay) {
  InfoList infos(*library);
  infos.add("first", std::string("port"));
  infos.add("second", std::string("port"));
  constexpr std::size_t kLarge = 40 << 20;
  const auto publish = [&](std::size_t which, NameSource source) {
    return board->publish(make_proc("a", 0), infos.data() + which, 1, source);
  };
  EXPECT_EQ(publish(0, {1, kLarge}), PMIX_SUCCESS);
  EXPECT_EQ(publish(1, {1, kLarge}), PMIX_ERR_OUT_OF_RESOURCE);
  EXPECT_EQ(publish(1, {2, kLarge}), PMIX_SUCCESS);
  EXPECT_EQ(board->unpublish(make_proc("a", 0), {"first", "second"}), PMIX_SUCCESS);
  EXPECT_EQ(publish(1, {1, kLarge}), PMIX_SUCCESS);
}

TEST_F(PmixBoardTest, LookupsOfAnotherHostThatWaitAreCountedUntilTheyEnd) {
  InfoList infos(*library);
  infos.add(PMIX_WAIT, 0U);
  constexpr std::size_t kLarge = 40 << 20;
  std::vector<pmix_status_t> answers;
  const auto wait = [&](pmix_rank_t rank, NameSource source) {
    board->lookup(
        make_proc("a", rank), {"key"}, infos.data(), infos.size(),
        [&](pmix_status_t status, std::vector<pmix_pdata_t>&) { answers.push_back(status); },
        source);
  };
  wait(0, {1, kLarge});
  EXPECT_TRUE(answers.empty());
  wait(1, {1, kLarge});
  EXPECT_EQ(answers, std::vector{PMIX_ERR_OUT_OF_RESOURCE});
  wait(2, {2, kLarge});
  board->forget(make_proc("a", 0));
  wait(1, {1, kLarge});
  EXPECT_EQ(answers, (std::vector{PMIX_ERR_OUT_OF_RESOURCE, PMIX_ERR_LOST_CONNECTION}));
}

}  // namespace
}  // namespace regroup::pmi
