// What an agent that is not yet one can tell from the words that wait for it.
#include "launcher/supervise/words.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace regroup::launcher {
namespace {

class WordsTest : public testing::Test {
 protected:
  WordsTest() {
    auto pair = word_sockets();
    EXPECT_TRUE(pair.ok());
    agent_ = std::move(pair->second);
    guardian_.emplace(
        loop_, std::move(pair->first), [](Word, std::int32_t, core::Fd) {}, [] {});
  }
  bool end_is_asked() const { return launcher::end_is_asked(agent_.get()); }

  boost::asio::io_context loop_{1};
  core::Fd agent_;
  std::optional<WordSocket> guardian_;
};

TEST_F(WordsTest, NothingIsAskedByWhoSaysNothing) { EXPECT_FALSE(end_is_asked()); }

// One that died while agents came up was restarted, perhaps more than once.
TEST_F(WordsTest, CoordinatorsAndSignalsWaitForTheAgent) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const core::Fd theirs(pipe[0]), ours(pipe[1]);
  for (std::int32_t incarnation = 1; incarnation <= 3; ++incarnation)
    ASSERT_TRUE(guardian_->send(Word::kCoordinator, incarnation, ours.get()));
  ASSERT_TRUE(guardian_->send(Word::kSignal, 10));
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(end_is_asked());

  std::vector<std::pair<Word, std::int32_t>> heard;
  ssize_t written = 0;
  const WordSocket agent(
      loop_, std::move(agent_),
      [&](Word word, std::int32_t value, core::Fd fd) {
        heard.emplace_back(word, value);
        if (word == Word::kCoordinator) written += ::write(fd.get(), "c", 1);
        if (word == Word::kSignal) loop_.stop();
      },
      [] {});
  loop_.run_for(std::chrono::seconds(10));
  const std::vector<std::pair<Word, std::int32_t>> said{
      {Word::kCoordinator, 1}, {Word::kCoordinator, 2}, {Word::kCoordinator, 3}, {Word::kSignal, 10}};
  EXPECT_EQ(heard, said);
  std::array<char, 8> bytes{};
  EXPECT_EQ(written, 3);
  EXPECT_EQ(::read(theirs.get(), bytes.data(), bytes.size()), 3);
}

TEST_F(WordsTest, AnEndIsSeenBehindOthers) {
  for (const Word word : {Word::kStop, Word::kKill}) {
    ASSERT_TRUE(guardian_->send(Word::kCoordinator, 1));
    EXPECT_FALSE(end_is_asked());
    ASSERT_TRUE(guardian_->send(word, 15));
    EXPECT_TRUE(end_is_asked());
    EXPECT_TRUE(end_is_asked());
    forget_words(agent_.get());
    EXPECT_FALSE(end_is_asked());
  }
}

TEST_F(WordsTest, AGuardianThatIsGoneAsksForAnEnd) {
  ASSERT_TRUE(guardian_->send(Word::kCoordinator, 1));
  guardian_.reset();
  EXPECT_TRUE(end_is_asked());
}

}  // namespace
}  // namespace regroup::launcher
