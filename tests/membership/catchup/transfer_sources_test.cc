// A state transfer from three sources, each with its part of the state: the target gets the whole
// state. A source that is gone, hangs or sends wrong data at any moment is named by its host,
// causes no damage, and is replaced. docs/design/catch_up.md.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>

#include "tests/membership/catchup/transfer_harness.h"

namespace regroup::catchup {
namespace {

using proto::NodeId;
using proto::SourceAgent;
using shmem::kSnapshotChunk;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::size_t kChunks = 8, kLongState = (kChunks - 1) * kSnapshotChunk + 777;
constexpr std::uint32_t kParts = 3;
constexpr std::array<NodeId, kParts> kNodes = {10, 11, 12};

std::size_t begin_of(std::uint32_t part) { return kChunks * part / kParts; }

class TransferSourcesTest : public TransferFixture {
 protected:
  TransferSourcesTest() : TransferFixture(kLongState) {
    for (std::uint32_t i = 0; i < kParts; ++i) {
      const auto context = transport::node(secret_, kNodes[i]);
      sources_.push_back(std::make_unique<TestSource>(loop_, context, kNodes[i], kLongState));
      false_.push_back(std::make_unique<FalseSource>(loop_, context));
    }
  }

  void poll_sources() override {
    for (const auto& source : sources_) source->poll();
  }
  static std::string host(std::uint32_t i) { return fmt::format("h{}", i); }
  std::vector<SourceAgent> sources() const {
    std::vector<SourceAgent> all;
    for (std::uint32_t i = 0; i < kParts; ++i)
      all.push_back({kNodes[i], sources_[i]->endpoints(), host(i)});
    return all;
  }
  std::vector<SourceAgent> without(std::uint32_t lost) const {
    auto all = sources();
    all.erase(all.begin() + lost);
    return all;
  }
  // The payloads that source i sends, in order.
  Payloads true_payloads(std::uint32_t i) {
    const std::size_t chunks = begin_of(i + 1) - begin_of(i);
    return recorded(*sources_[i], kNodes[i], i, kParts, 1 + chunks + (i == 0 ? kOfResults : 0));
  }
  End learn_with(std::uint32_t i, Payloads says, bool hangs_up) {
    false_[i]->says = std::move(says);
    false_[i]->hangs_up = hangs_up;
    auto all = sources();
    all[i].endpoints = false_[i]->endpoints();
    return learn_from(all);
  }
  void expect_told(std::uint32_t i, const std::string& what) {
    EXPECT_THAT(why_, StartsWith(fmt::format("host h{}: {}: ", i, false_[i]->endpoints()))) << what;
  }
  // The remaining sources serve the next state transfer.
  void expect_no_harm(std::uint32_t lost) {
    for (const auto& source : sources_) EXPECT_TRUE(source->gives());
    EXPECT_EQ(learn_from(without(lost)), End::kLearned) << why_;
  }

  std::vector<std::unique_ptr<TestSource>> sources_;
  std::vector<std::unique_ptr<FalseSource>> false_;
};

// Outside of its part each has something else, which nobody must get.
TEST_F(TransferSourcesTest, EachGivesItsPartAndTheFirstTheResults) {
  for (std::uint32_t i = 0; i < kParts; ++i) {
    const shmem::Arena& arena = sources_[i]->arena();
    const std::size_t begin = begin_of(i) * kSnapshotChunk;
    const std::size_t end = std::min(kLongState, begin_of(i + 1) * kSnapshotChunk);
    std::ranges::fill(arena.snapshot().first(begin), std::byte{0xee});
    std::ranges::fill(arena.snapshot().subspan(end), std::byte{0xee});
    for (proto::Step step = kMark.step + 1; i > 0 && step <= kNewest; ++step)
      std::ranges::fill(arena.kept_result(step), std::byte{0xee});
  }
  EXPECT_EQ(learn_from(sources()), End::kLearned) << why_;
  auto swapped = sources();
  std::swap(swapped[1], swapped[2]);
  EXPECT_EQ(learn_from(swapped), End::kRefused);
  EXPECT_THAT(why_, HasSubstr("CRC32C")) << "the test would have seen it";
}

TEST_F(TransferSourcesTest, AnyOfThemMayBeDoneWithout) {
  for (std::uint32_t lost = 0; lost < kParts; ++lost)
    EXPECT_EQ(learn_from(without(lost)), End::kLearned);
  for (const SourceAgent& alone : sources()) EXPECT_EQ(learn_from({alone}), End::kLearned);
}

TEST_F(TransferSourcesTest, OneThatIsGoneAtAnyMomentIsToldByName) {
  for (std::uint32_t i = 0; i < kParts; ++i) {
    const Payloads all = true_payloads(i);
    for (std::size_t n = 0; n < all.size(); ++n) {
      const std::string what = fmt::format("source {} after {} payloads", i, n);
      const Payloads some(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n));
      EXPECT_EQ(learn_with(i, some, true), End::kRefused) << what;
      expect_told(i, what);
    }
    expect_no_harm(i);
  }
}

TEST_F(TransferSourcesTest, OneThatNobodyReachesIsToldByName) {
  auto all = sources();
  all[1].endpoints = "127.0.0.1:1";
  EXPECT_EQ(learn_from(all), End::kRefused);
  EXPECT_THAT(why_, StartsWith("host h1: "));
  EXPECT_THAT(why_, HasSubstr("127.0.0.1:1"));
  all[1].endpoints = "nowhere";
  EXPECT_EQ(learn_from(all), End::kRefused);
  EXPECT_THAT(why_, StartsWith("host h1: "));
  expect_no_harm(1);
}

// Nobody but the coordinator knows that it will not go on: its host falls silent, or the ring is
// full.
TEST_F(TransferSourcesTest, OneThatStandsStillIsWaitedForUntilTheTransferIsOver) {
  for (std::uint32_t i = 0; i < kParts; ++i) {
    const Payloads all = true_payloads(i);
    for (const std::size_t n : {std::size_t{0}, std::size_t{2}}) {
      const Payloads some(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n));
      EXPECT_EQ(learn_with(i, some, false), End::kWaits) << why_;
      EXPECT_EQ(why_, "");
    }
    expect_no_harm(i);
  }
}

TEST_F(TransferSourcesTest, OneWhoseBytesAreDamagedIsToldByName) {
  std::mt19937 random(23);
  for (std::uint32_t i = 0; i < kParts; ++i) {
    const Payloads all = true_payloads(i);
    for (std::size_t which = 1; which < all.size(); ++which) {
      if (all[which].size() < 500) continue;  // a length
      Payloads changed = all;
      // In the middle, where the bytes of the state or of the result are.
      const std::size_t half = all[which].size() / 2;
      changed[which][half + random() % (half / 2)] ^= static_cast<std::byte>(1 << random() % 8);
      const std::string what = fmt::format("source {}, payload {}", i, which);
      EXPECT_EQ(learn_with(i, changed, false), End::kRefused) << what;
      expect_told(i, what);
      EXPECT_THAT(why_, HasSubstr("CRC32C")) << what;
    }
    expect_no_harm(i);
  }
}

TEST_F(TransferSourcesTest, OneThatGivesMoreThanItsPartOrAnotherStateIsRefused) {
  const auto length = [](std::uint64_t bytes) { return encode(TransferLength{bytes, kNewest}); };
  const auto end = encode(TransferChunk{0, 0, true, 0, {}});
  EXPECT_EQ(learn_with(1, {length(kLongState - 1), end}, false), End::kRefused);
  EXPECT_THAT(why_, HasSubstr("states of different sizes"));
  // The results are the first's to give.
  const Payloads first = true_payloads(0);
  Payloads results = {length(kLongState)};
  results.insert(results.end(), first.end() - kOfResults, first.end());
  EXPECT_EQ(learn_with(1, results, false), End::kRefused);
  EXPECT_THAT(why_, HasSubstr("unexpected result of step"));
  expect_told(1, "results of the second");
  expect_no_harm(1);
}

}  // namespace
}  // namespace regroup::catchup
