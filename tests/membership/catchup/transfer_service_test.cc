// State transfers between two agents. Then sources that have the secret and send what the true one
// sent, but for one byte, length or place; and readers that ask for what they should not. With
// REGROUP_TEST_FULL every byte of a small state is changed. docs/design/catch_up.md.
#include "membership/catchup/transfer_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>

#include "tests/membership/catchup/transfer_harness.h"

namespace regroup::catchup {
namespace {

using proto::Step;
using shmem::kSnapshotChunk;
using testing::HasSubstr;
using transport::run_until;

constexpr std::size_t kState = kSnapshotChunk + 777, kSmallState = 777;
constexpr std::size_t kSmallPayload = 4096;

class TransferServiceTest : public TransferFixture {
 protected:
  explicit TransferServiceTest(std::size_t state = kState) : TransferFixture(state) {}
  void poll_sources() override { source_.poll(); }

  End learn() { return learn_from({{kGives, source_.endpoints(), "h0"}}); }
  End learn_falsely(Payloads payloads) {
    false_.says = std::move(payloads);
    return learn_from({{kGives, false_.endpoints(), "h0"}});
  }
  // The length, the state, and each result behind its own length.
  Payloads true_payloads() {
    const std::size_t chunks = (state_ + kSnapshotChunk - 1) / kSnapshotChunk;
    return recorded(source_, kGives, 0, 1, 1 + chunks + kOfResults);
  }
  // A state transfer with one byte changed.
  void change(const Payloads& all, std::size_t which, std::size_t at) {
    Payloads changed = all;
    changed[which][at] ^= static_cast<std::byte>(random_() % 2 == 0 ? 0xff : 1 << random_() % 8);
    const End end = learn_falsely(std::move(changed));
    ++ends_[end];
    // Only behind the last of all may it wait for more.
    EXPECT_TRUE(end != End::kWrong && (end != End::kWaits || which + 1 == all.size()))
        << "payload " << which << ", byte " << at << ": " << static_cast<int>(end);
    EXPECT_TRUE(end != End::kRefused || !why_.empty());
  }

  TestSource source_{loop_, transport::node(secret_, kGives), kGives, state_};
  FalseSource false_{loop_, transport::node(secret_, kGives)};
  std::mt19937 random_{17};
  std::map<End, int> ends_;  // what came of changes
};

class SmallTransferTest : public TransferServiceTest {
 protected:
  SmallTransferTest() : TransferServiceTest(kSmallState) {}
};

TEST_F(TransferServiceTest, ALearnerHasWhatTheSourceHas) {
  EXPECT_EQ(learn(), End::kLearned) << why_;
  EXPECT_EQ(learn_falsely(true_payloads()), End::kLearned)
      << "it says what the true one said: " << why_;
}

TEST_F(TransferServiceTest, NoByteThatIsChangedIsLearned) {
  const Payloads all = true_payloads();
  for (std::size_t which = 0; which < all.size(); ++which) {
    const std::size_t size = all[which].size();
    for (std::size_t at = 0; at < std::min<std::size_t>(size, 100); ++at) change(all, which, at);
    for (int n = 0; n < 60; ++n) change(all, which, random_() % size);
    change(all, which, size - 1);
  }
  EXPECT_GT(ends_[End::kRefused], 500);
  EXPECT_TRUE(source_.gives());
  EXPECT_EQ(learn(), End::kLearned) << "after all that: " << why_;
}

TEST_F(SmallTransferTest, NoByteThatIsChangedIsLearned) {
  const std::size_t stride = std::getenv("REGROUP_TEST_FULL") != nullptr ? 1 : 41;
  const Payloads all = true_payloads();
  for (std::size_t which = 0; which < all.size(); ++which) {
    if (all[which].size() > kSmallPayload) continue;  // the large chunks of results
    for (std::size_t at = 0; at < all[which].size(); at += stride) change(all, which, at);
  }
  EXPECT_LT(ends_[End::kLearned], ends_[End::kFound] + ends_[End::kRefused])
      << "only padding, and lengths of results, are not needed";
  EXPECT_EQ(learn(), End::kLearned) << "after all that: " << why_;
}

TEST_F(TransferServiceTest, NoPayloadThatIsCutOrPaddedIsLearned) {
  const Payloads all = true_payloads();
  for (std::size_t which = 0; which < all.size(); ++which) {
    const std::size_t size = all[which].size();
    for (const std::size_t left : {std::size_t{0}, std::size_t{1}, size / 2, size - 1}) {
      Payloads cut = all;
      cut[which].resize(left);
      const End end = learn_falsely(std::move(cut));
      EXPECT_TRUE(end == End::kRefused || end == End::kFound || end == End::kLearned)
          << which << " " << left;
      EXPECT_TRUE(end != End::kLearned || left == size - 1)
          << "only padding may be missing: " << which;
    }
  }
}

TEST_F(TransferServiceTest, NothingOutOfTurnIsLearned) {
  const Payloads all = true_payloads();
  for (std::size_t i = 0; i + 1 < all.size(); ++i) {
    Payloads less = all, twice = all, other = all;
    less.erase(less.begin() + static_cast<std::ptrdiff_t>(i));
    twice.insert(twice.begin() + static_cast<std::ptrdiff_t>(i), all[i]);
    std::swap(other[i], other[i + 1]);
    // A length of results says nothing that is needed; of two chunks of one thing the order is free
    // but for the last.
    const bool length = i == 3 || i == 6;
    EXPECT_EQ(learn_falsely(less), length                       ? End::kLearned
                                   : i == 1 || i == 4 || i == 7 ? End::kFound
                                                                : End::kRefused)
        << "without " << i << ": " << why_;
    const End again = learn_falsely(twice), swapped = learn_falsely(other);
    for (const End end : {again, swapped}) {
      EXPECT_TRUE(end == End::kLearned || end == End::kRefused || end == End::kFound)
          << i << ": " << static_cast<int>(end) << why_;
    }
  }
}

TEST_F(TransferServiceTest, ASourceThatIsGoneAtAnyMomentIsTold) {
  const Payloads all = true_payloads();
  false_.hangs_up = true;
  for (std::size_t n = 0; n < all.size(); ++n) {
    EXPECT_EQ(learn_falsely(Payloads(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n))),
              End::kRefused);
    EXPECT_THAT(why_, HasSubstr("127.0.0.1")) << n;
  }
}

TEST_F(TransferServiceTest, FalseNumbersAreRefusedWithASentence) {
  const auto length = [](std::uint64_t bytes, Step newest) {
    return encode(TransferLength{bytes, newest});
  };
  const auto chunk = [](Step step, std::uint32_t which, std::size_t size) {
    return encode(TransferChunk{step, which, false, 0, Payload(size)});
  };
  const struct {
    Payloads says;
    const char* why;
  } rows[] = {
      {{length(kState + 1, 7)}, "bytes, expected at most"},
      {{length(~0ULL, 7)}, "bytes, expected at most"},
      {{chunk(0, 0, 8)}, "unexpected chunk 0 of a snapshot of 0 bytes"},
      {{length(kState, 7), chunk(0, 2, 8)}, "chunk 2 of a snapshot"},
      {{length(kState, 7), chunk(0, ~0U, 8)}, "of a snapshot"},
      {{length(kState, 7), chunk(0, 1, 776)}, "776 bytes, expected 777"},
      {{length(kState, 7), chunk(8, 0, kSnapshotChunk)},
       "unexpected result of step"},  // before the state
      {{length(kState, 7), chunk(7, 0, kSnapshotChunk)}, "unexpected result of step"},
      {{length(kState, 7), chunk(~0ULL, 0, 8)}, "unexpected result of step"},
      {{length(kState, kMark.step + proto::kMaxKeptResults + 1)},
       "the newest result is of step"},  // a target that believed it would never catch up
      {{length(kState, ~0ULL)}, "the newest result is of step"},
      {{encode(TransferRequest{kMark.transfer, 0, 1, true})}, "unexpected TransferRequest"},
      {{encode(TransferError{"it has failed"})}, "it has failed"},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(learn_falsely(row.says), End::kRefused) << row.why;
    EXPECT_THAT(why_, HasSubstr(row.why));
  }
  EXPECT_EQ(learn_falsely(true_payloads()), End::kLearned) << why_;
}

TEST_F(TransferServiceTest, ReadersThatRequestWhatIsNotServedAreDropped) {
  const struct {
    TransferMessage asks;
    const char* told;  // empty: nothing
  } rows[] = {
      {TransferRequest{kMark.transfer + 1, 0, 1, true}, "state transfer 4 is not served here"},
      {TransferRequest{kMark.transfer, 1, 1, true}, ""},
      {TransferLength{1, 1}, ""},
      {TransferChunk{8, 9, true, 0, Payload(5)}, ""},
      {TransferError{"go away"}, ""},
  };
  for (const auto& row : rows) {
    bool closed = false;
    std::string told;
    auto reader = call(source_.endpoints(), kGives);
    reader->start({.message = {},
                   .closed = [&](const base::Status&) { closed = true; },
                   .opened = {},
                   .payload = [&](std::span<const std::byte> payload) -> base::Status {
                     const auto message = decode_transfer(payload);
                     EXPECT_TRUE(message.ok() && std::holds_alternative<TransferError>(*message));
                     if (message.ok()) told = std::get<TransferError>(*message).why;
                     return {};
                   }});
    reader->send_payload(encode(row.asks));
    EXPECT_TRUE(run_until(loop_, [&] { return closed; })) << row.told;
    EXPECT_EQ(told, row.told);
    reader->close();
    EXPECT_TRUE(source_.gives());
  }
  EXPECT_EQ(learn(), End::kLearned) << why_;
}

}  // namespace
}  // namespace regroup::catchup
