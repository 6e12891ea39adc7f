// The order of a call's effects, and the sentences that are kept.
#include "membership/coordinator/outbox.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

namespace regroup::membership {
namespace {

const base::TimePoint kThen{std::chrono::seconds(7)};

template <class T>
const T* at(const Effects& effects, std::size_t index) {
  return std::get_if<T>(&effects.at(index));
}

TEST(Outbox, EffectsAreTakenInTheirOrderAndOnce) {
  Outbox outbox;
  outbox.journal(Intent{.target = 3});
  outbox.send(2, proto::Notice{5});
  outbox.send_to_all(proto::Query{});
  outbox.reply(9, proto::Reply{true, "done"});
  outbox.finish(4, "why");
  const Effects effects = outbox.take();
  ASSERT_EQ(effects.size(), 5U);
  EXPECT_NE(at<Journal>(effects, 0), nullptr);
  EXPECT_EQ(at<ToAgent>(effects, 1)->node, 2U);
  EXPECT_EQ(at<ToAgent>(effects, 2)->node, proto::kEveryNode);
  EXPECT_EQ(at<ToClient>(effects, 3)->client, 9U);
  EXPECT_EQ(at<Done>(effects, 4)->exit_code, 4);
  EXPECT_TRUE(outbox.take().empty());
}

TEST(Outbox, AnEntryGoesBeforeEffectsThatWereKnownEarlier) {
  Outbox outbox;
  outbox.send(0, proto::Query{});
  const std::size_t position = outbox.end();
  outbox.send(1, proto::Notice{5});
  outbox.journal_at(position, Intent{});
  const Effects effects = outbox.take();
  ASSERT_EQ(effects.size(), 3U);
  EXPECT_EQ(at<ToAgent>(effects, 0)->node, 0U);
  EXPECT_NE(at<Journal>(effects, 1), nullptr);
  EXPECT_EQ(at<ToAgent>(effects, 2)->node, 1U);
}

TEST(Outbox, ASentenceIsShownEachTimeAndKeptOnce) {
  Outbox outbox;
  outbox.begin(kThen);
  outbox.note("member 1 is lost");
  outbox.note("member 1 is lost");
  EXPECT_EQ(outbox.history(), (std::deque<JobEvent>{{kThen, "member 1 is lost"}}));
  const Effects effects = outbox.take();
  ASSERT_EQ(effects.size(), 3U);
  EXPECT_NE(at<Say>(effects, 0), nullptr);
  EXPECT_NE(at<Journal>(effects, 1), nullptr);
  EXPECT_NE(at<Say>(effects, 2), nullptr);
}

TEST(Outbox, TheNewestSentencesStay) {
  Outbox outbox({{kThen, "of an earlier incarnation"}});
  for (std::size_t i = 0; i < kMostSentences; ++i) outbox.remember(fmt::format("sentence {}", i));
  EXPECT_EQ(outbox.history().size(), kMostSentences);
  EXPECT_EQ(outbox.history().front().text, "sentence 0");
}

}  // namespace
}  // namespace regroup::membership
