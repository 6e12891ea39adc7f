// Which name a mistyped word is answered with.
#include "base/nearest.h"

#include <gtest/gtest.h>

namespace regroup::base {
namespace {

const std::vector<std::string> kNames = {
    "output-from", "output-filename", "oversubscribe", "notice", "fork", "min-members-timeout"};

struct Typo {
  std::string word, answer;
};

TEST(Nearest, AnswersATypoWithTheNameThatWasMeant) {
  for (const Typo& typo :
       {Typo{"oversubscrib", "oversubscribe"}, Typo{"oversubscirbe", "oversubscribe"},
        Typo{"frok", "fork"}, Typo{"notcie", "notice"}, Typo{"output-fron", "output-from"}})
    EXPECT_EQ(nearest(typo.word, kNames), typo.answer) << typo.word;
}

TEST(Nearest, PrefersANameThatBeginsWithTheWord) {
  EXPECT_EQ(nearest("output-file", kNames), "output-filename");
  EXPECT_EQ(nearest("min-members", kNames), "min-members-timeout");
  EXPECT_EQ(nearest("min", kNames), "") << "three letters say too little";
}

TEST(Nearest, IsSilentAboutAWordThatIsLikeNoName) {
  for (const std::string word : {"topics", "nosuch", "bogus", "", "x"})
    EXPECT_EQ(nearest(word, kNames), "") << word;
}

}  // namespace
}  // namespace regroup::base
