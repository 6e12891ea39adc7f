// A session without an agent is a world of one and behaves like any other.
#include "regroup/session.h"
#include "base/clock.h"
#include "base/status.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "elastic/ledger_format.h"
#include "elastic/options.h"
#include "elastic/sampler.h"

namespace regroup::elastic {
namespace {

class SessionTest : public testing::Test {
 protected:
  SessionTest() : weights_(8) {
    ::unsetenv("REGROUP_AGENT");
    ::setenv("REGROUP_SHARDS", "4", 1);
    state_.track("weights", std::span(weights_));
    options_.elements = weights_.size();
    options_.state = &state_;
    options_.samples = 10;
    options_.batch = 4;
    options_.epochs = 2;
  }
  ~SessionTest() override { ::unsetenv("REGROUP_SHARDS"); }

  std::vector<float> weights_;
  TrackedState state_;
  Options options_;
};

TEST_F(SessionTest, RunsEveryStepOfEveryEpochAndEverySampleOnce) {
  auto session = Session::join(options_);
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  std::multiset<std::uint64_t> seen;
  int steps = 0;
  for (auto step = (*session)->next_step(); step.ok() && *step; step = (*session)->next_step()) {
    ++steps;
    for (auto shard = (*session)->next_shard(); *shard; shard = (*session)->next_shard()) {
      ASSERT_FALSE((**shard).samples.empty());
      const std::span leaf(reinterpret_cast<float*>((**shard).gradient.data()), weights_.size());
      std::fill(leaf.begin(), leaf.end(), static_cast<float>((**shard).samples.size()));
      seen.insert((**shard).samples.begin(), (**shard).samples.end());
    }
    auto sum = (*session)->commit();
    ASSERT_TRUE(sum.ok());
    const auto* values = reinterpret_cast<const float*>(sum->data());
    EXPECT_EQ(values[0], static_cast<float>((**step).samples));
    EXPECT_EQ(values[7], static_cast<float>((**step).samples));
  }
  EXPECT_EQ(steps, 6);
  EXPECT_EQ(seen.size(), 20U);
  EXPECT_EQ(std::set<std::uint64_t>(seen.begin(), seen.end()).size(), 10U);
  EXPECT_EQ((*session)->last_step(), 6U);
  EXPECT_TRUE((*session)->finish().ok());
}

TEST_F(SessionTest, PlansTheShardsThatItReturnsLater) {
  auto session = Session::join(options_);
  ASSERT_TRUE(session.ok());
  std::vector<std::vector<Shard>> planned;
  EXPECT_TRUE((*session)->planned_shards(0).empty());
  for (proto::Step step = 1; step <= 7; ++step) planned.push_back((*session)->planned_shards(step));
  EXPECT_EQ(planned[0].size(), 4U);
  EXPECT_EQ(planned[2].size(), 2U);  // the last batch of the epoch has two samples
  EXPECT_TRUE(planned[6].empty());   // after the last epoch
  for (auto step = (*session)->next_step(); step.ok() && *step; step = (*session)->next_step()) {
    const auto& expected = planned[(**step).step - 1];
    std::size_t at = 0;
    for (auto shard = (*session)->next_shard(); *shard; shard = (*session)->next_shard(), ++at) {
      ASSERT_LT(at, expected.size());
      EXPECT_EQ((**shard).leaf, expected[at].leaf);
      EXPECT_EQ((**shard).samples, expected[at].samples);
      EXPECT_EQ((**shard).seed, expected[at].seed);
      const Shard same = (*session)->shard_of((**step).step, (**shard).leaf);
      EXPECT_EQ(same.samples, (**shard).samples);
      EXPECT_EQ(same.seed, (**shard).seed);
      EXPECT_EQ((*session)->planned_shards((**step).step).size(), expected.size() - at);
    }
    EXPECT_EQ(at, expected.size());
    EXPECT_TRUE((*session)->planned_shards((**step).step).empty());  // it is over
  }
}

TEST_F(SessionTest, FillsAGradientFromWeightedParts) {
  auto session = Session::join(options_);
  ASSERT_TRUE(session.ok());
  const std::vector<float> values(weights_.size(), 3.0F);
  const std::vector<GradientPart> parts = {{1, 2, values.data(), 0.25}, {5, 3, values.data(), 1}};
  ASSERT_TRUE((*session)->next_step().ok());
  EXPECT_EQ((*session)->fill_gradient(parts).message(),
            "fill_gradient() called without a shard that is to be filled");
  for (auto shard = (*session)->next_shard(); *shard; shard = (*session)->next_shard()) {
    const std::vector<std::vector<GradientPart>> wrong = {
        {{0, 9, values.data(), 1}},
        {{9, 0, values.data(), 1}},
        {{1, ~0ULL, values.data(), 1}},
        {{4, 2, values.data(), 1}, {5, 1, values.data(), 1}},
    };
    for (const auto& each : wrong)
      EXPECT_EQ((*session)->fill_gradient(each).code(), base::Code::kInvalidArgument);
    ASSERT_TRUE((*session)->fill_gradient(parts).ok());
    EXPECT_EQ((*session)->fill_gradient(parts).message(),
              "fill_gradient() called without a shard that is to be filled");
  }
  EXPECT_FALSE((*session)->fill_gradient(parts).ok());
  auto sum = (*session)->commit();
  ASSERT_TRUE(sum.ok());
  const std::span got(reinterpret_cast<const float*>(sum->data()), weights_.size());
  EXPECT_EQ(std::vector<float>(got.begin(), got.end()),
            (std::vector<float>{0, 3, 3, 0, 0, 12, 12, 12}));  // of four shards
}

TEST_F(SessionTest, ARegionThatFailsEndsTheSession) {
  auto session = Session::join(options_);
  ASSERT_TRUE(session.ok());
  const float in = 3.0F;
  float out = 0.0F;
  const auto body = [&](collective::Communicator& c) {
    return c.allreduce(std::as_bytes(std::span(&in, 1)), std::as_writable_bytes(std::span(&out, 1)),
                       collective::Dtype::kFloat32,
                       base::SystemClock().now() + std::chrono::seconds(5));
  };
  EXPECT_TRUE((*session)->collective(body).ok());
  EXPECT_EQ(out, 3.0F);
  const auto fails = [](collective::Communicator&) { return base::invalid_argument("mine"); };
  EXPECT_EQ((*session)->collective(fails).message(), "mine");
  EXPECT_EQ((*session)->next_step().status().message(), "mine");  // it stays open: never a hang
}

TEST_F(SessionTest, RefusesARegionWithinAStep) {
  auto session = Session::join(options_);
  ASSERT_TRUE(session.ok());
  const auto body = [](collective::Communicator&) { return base::Status(); };
  ASSERT_TRUE((*session)->next_step().ok());
  EXPECT_EQ((*session)->collective(body).code(), base::Code::kInvalidArgument);
}

TEST_F(SessionTest, NamesTheExpectedCallAfterOneOutOfOrder) {
  auto session = Session::join(options_);
  ASSERT_TRUE(session.ok());
  EXPECT_EQ((*session)->next_shard().status().message(),
            "next_shard() called without an open step");
  ASSERT_TRUE((*session)->next_step().ok());
  EXPECT_EQ((*session)->next_step().status().message(),
            "next_step() called before the previous step was committed");
  EXPECT_EQ((*session)->commit().code(), base::Code::kInvalidArgument);
}

// The death of a member is that of the thread that joined (rule lastwrite of tests/model).
TEST_F(SessionTest, OnlyTheThreadThatJoinedTrains) {
  auto session = Session::join(options_);
  ASSERT_TRUE(session.ok());
  Session& own = **session;
  ASSERT_TRUE(own.next_step().ok());
  const auto shard = own.next_shard();
  ASSERT_TRUE(shard.ok() && *shard);
  std::vector<base::Status> answers;
  int ran = 0;
  std::jthread([&] {
    for (int i = 0; i < 8; ++i)
      answers.push_back(own.next_shard().status());  // more than there are leaves
    answers.push_back(own.next_step().status());
    answers.push_back(own.commit().status());
    answers.push_back(own.save_targets().status());
    answers.push_back(
        own.collective([&](collective::Communicator&) { return ++ran, base::Status(); }));
    answers.push_back(own.finish());
  }).join();
  for (const base::Status& answer : answers) {
    EXPECT_EQ(answer.code(), base::Code::kInvalidArgument);
    EXPECT_NE(answer.message().find(": called on a thread other than the one that called join()"),
              std::string::npos);
  }
  EXPECT_EQ(ran, 0);
  EXPECT_EQ(own.last_step(), 0U);  // no result was written: the step is open
  int leaves = 1;
  for (auto more = own.next_shard(); more.ok() && *more; more = own.next_shard()) ++leaves;
  EXPECT_EQ(leaves, 4);
  EXPECT_TRUE(own.commit().ok());
}

TEST_F(SessionTest, RefusesOptionsThatCannotWork) {
  options_.elements = 0;
  EXPECT_EQ(Session::join(options_).status().message(),
            "join: expected at least 1 gradient element, got 0");
  options_.elements = 8;
  options_.state = nullptr;
  EXPECT_EQ(Session::join(options_).status().message(), "join: Options::state is null");
  options_.state = &state_;
  options_.deadline = std::chrono::seconds(0);
  EXPECT_EQ(Session::join(options_).status().message(),
            "join: expected a deadline from 1 s to a year, got 0 s");
  options_.deadline = std::chrono::seconds(60);
  options_.substeps = 0;
  EXPECT_EQ(Session::join(options_).status().message(),
            "join: expected at least 1, got 0 substeps");
  options_.samples = 0;
  options_.substeps = 2;
  EXPECT_EQ(Session::join(options_).status().message(),
            "join: expected 1 substep without a sampler, got 2 substeps");
}

TEST_F(SessionTest, RefusesVariablesThatAreNotNumbers) {
  ::setenv("REGROUP_SHARDS", "many", 1);
  EXPECT_EQ(Session::join(options_).status().message(),
            "REGROUP_SHARDS=many: expected a number from 1 to 16384");
}

TEST_F(SessionTest, SubstepsTakeTheSameBatchAndSeeds) {
  options_.substeps = 2;
  auto session = Session::join(options_);
  ASSERT_TRUE(session.ok());
  std::vector<std::vector<std::uint64_t>> samples, seeds;
  proto::Step steps = 0;
  for (auto step = (*session)->next_step(); step.ok() && *step; step = (*session)->next_step()) {
    EXPECT_EQ((**step).step, ++steps);
    EXPECT_EQ((**step).substep, (steps - 1) % 2);
    EXPECT_EQ((**step).epoch, (steps - 1) / 6);
    EXPECT_EQ((**step).first_of_epoch, steps % 6 == 1);
    samples.emplace_back(), seeds.emplace_back();
    for (auto shard = (*session)->next_shard(); *shard; shard = (*session)->next_shard()) {
      samples.back().insert(samples.back().end(), (**shard).samples.begin(),
                            (**shard).samples.end());
      seeds.back().push_back((**shard).seed);
      std::ranges::fill((**shard).gradient, std::byte{});
    }
    if (steps % 2 == 0) {
      EXPECT_EQ(samples[steps - 1], samples[steps - 2]);
      EXPECT_EQ(seeds[steps - 1], seeds[steps - 2]);
    }
  }
  EXPECT_EQ(steps, 12U);  // of two epochs of three batches
  EXPECT_NE(seeds[2], seeds[1]);
  EXPECT_TRUE((*session)->finish().ok());
}

// The lines of a ledger in `folder`, without the header.
std::vector<LedgerLine> ledger_in(const std::string& folder) {
  std::ifstream file(folder + "/" + kLedgerFile);
  std::vector<LedgerLine> lines;
  std::string text;
  std::getline(file, text);
  EXPECT_TRUE(parse_ledger_header(text).ok()) << text;
  while (std::getline(file, text)) {
    auto line = parse_ledger_line(text);
    EXPECT_TRUE(line.ok()) << text;
    if (line.ok()) lines.push_back(std::move(*line));
  }
  return lines;
}

TEST_F(SessionTest, TheLedgerNamesTheSamplesThatTheCallerTook) {
  std::string folder = "/tmp/session_ledger_XXXXXX";
  ::setenv("REGROUP_LEDGER", ::mkdtemp(folder.data()), 1);
  const std::vector<std::uint64_t> own{7, 7, 1};
  {
    auto session = Session::join(options_);
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    EXPECT_EQ((*session)->record_samples(own).code(), base::Code::kInvalidArgument);
    for (auto step = (*session)->next_step(); step.ok() && *step; step = (*session)->next_step()) {
      for (auto shard = (*session)->next_shard(); *shard; shard = (*session)->next_shard()) {
        EXPECT_EQ((**shard).gradient.size(), weights_.size() * sizeof(float));
        if ((**step).step == 2 && (**shard).leaf == 1) {
          ASSERT_TRUE((*session)->record_samples(own).ok());
        }
        if ((**step).step % 2 == 0) {  // which adds the leaves before it, with their marks
          ASSERT_TRUE((*session)->fill_gradient({}).ok());
          EXPECT_EQ((*session)->record_samples(own).code(), base::Code::kInvalidArgument);
        } else {
          std::ranges::fill((**shard).gradient, std::byte{});
        }
      }
      EXPECT_EQ(ledger_in(folder).size(), (**step).step) << "before the sum is applied";
      EXPECT_EQ((*session)->commit()->size(), weights_.size() * sizeof(float));
    }
    EXPECT_TRUE((*session)->finish().ok());
  }
  ::unsetenv("REGROUP_LEDGER");
  const auto lines = ledger_in(folder);
  std::filesystem::remove_all(folder);
  ASSERT_EQ(lines.size(), 6U);
  const Sampler sampler(0, {.samples = 10, .batch = 4, .shards = 4});
  for (const LedgerLine& line : lines) {
    EXPECT_EQ(line.epoch, (line.step - 1) / 3);
    EXPECT_EQ(line.samples, line.step % 3 == 0 ? 2U : 4U);
    for (std::uint32_t leaf = 0; leaf < 4; ++leaf) {
      auto samples = sampler.samples_of(line.step, leaf);
      if (line.step == 2 && leaf == 1) samples = own;
      EXPECT_EQ(line.leaves.at(leaf),
                (LeafRecord{.samples = samples.size(), .crc = samples_crc(samples)}));
    }
  }
}

TEST_F(SessionTest, ARankThatTrainsAloneHasNoLedger) {
  ::setenv("REGROUP_LEDGER", "/nonexistent", 1);
  ::setenv("REGROUP_WORLD", "alone", 1);
  EXPECT_EQ(Session::join(options_).status().message(),
            "ledger: each rank trains alone, and a ledger has the steps of one training");
  ::unsetenv("REGROUP_WORLD");
  ::unsetenv("REGROUP_LEDGER");
}

TEST_F(SessionTest, KnowsTheNumberOfShardsBeforeItJoins) {
  EXPECT_EQ(Session::expected_shards().value(), 4U);
  ::unsetenv("REGROUP_SHARDS");
  EXPECT_EQ(Session::expected_shards().value(), 1U);
  ::setenv("REGROUP_AGENT", "/nonexistent/agent.sock", 1);
  const auto unknown = Session::expected_shards();
  ::unsetenv("REGROUP_AGENT");
  EXPECT_EQ(unknown.code(), base::Code::kUnavailable);
  EXPECT_NE(unknown.status().message().find("start it with --shards V"), std::string::npos);
}

TEST_F(SessionTest, NamesAMissingAgent) {
  ::setenv("REGROUP_AGENT", "/nonexistent/agent.sock", 1);
  const auto session = Session::join(options_);
  ::unsetenv("REGROUP_AGENT");
  EXPECT_NE(session.status().message().find("/nonexistent/agent.sock"), std::string::npos);
}

}  // namespace
}  // namespace regroup::elastic
