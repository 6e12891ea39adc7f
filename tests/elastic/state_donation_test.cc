// State from donors to newcomers: what arrives, and what does not pass for it.
#include "elastic/state_donation.h"
#include "base/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/elastic/members.h"

namespace regroup::elastic {
namespace {

using base::Code;
using base::Status;
using collective::testing::eventually;
using proto::SlotIndex;
using shmem::kSnapshotChunk;
using testing::Agent;
using testing::Bytes;
using ::testing::HasSubstr;
using testing::pattern;
using testing::random_bytes;
using testing::start;
using testing::start_donor;

void hand_over(SlotIndex donors, SlotIndex newcomers, std::size_t size, bool in_place) {
  SCOPED_TRACE(::testing::Message()
               << donors << " donors, " << newcomers << " newcomers, " << size << " bytes");
  Agent agent(donors + newcomers, size);
  std::vector<Bytes> states(donors, Bytes(random_bytes(size, size)));
  states.resize(donors + newcomers);
  for (Bytes& state : states) state.in_place = in_place;
  std::vector<std::jthread> members;
  std::set<SlotIndex> from, to;
  for (SlotIndex slot = 0; slot < donors; from.insert(slot++)) {
    members.push_back(start_donor(agent, slot, states[slot]));
  }
  for (SlotIndex slot = donors; slot < donors + newcomers; to.insert(slot++)) {
    members.push_back(start(agent, slot, [&state = states[slot]](Participant& self) {
      const Status adopted = adopt_state(self, state);
      EXPECT_TRUE(adopted.ok()) << adopted.to_string();
    }));
  }
  agent.welcome_all();
  agent.announce(1, from, to);
  members.clear();
  for (const SlotIndex slot : from) EXPECT_EQ(agent.member_slot(slot).donated.load(), 1U);
  for (const SlotIndex slot : to) {
    EXPECT_TRUE(states[slot].bytes() == states[0].bytes());
    EXPECT_EQ(states[slot].loads, in_place && size > 0 ? 0 : 1);
    EXPECT_EQ(agent.member_slot(slot).proved.load(), 1U);
    EXPECT_EQ(agent.member_slot(slot).using_snapshot.load(), 0U);
  }
}

TEST(StateDonation, NewcomersGetTheBytesOfAllDonors) {
  for (SlotIndex donors = 1; donors <= 3; ++donors) {
    for (const std::size_t size : {std::size_t{1}, kSnapshotChunk - 1, kSnapshotChunk,
                                   3 * kSnapshotChunk, 5 * kSnapshotChunk + 7}) {
      for (const bool in_place : {false, true}) hand_over(donors, 1, size, in_place);
    }
    for (const bool in_place : {false, true})
      hand_over(donors, 2, 2 * kSnapshotChunk + 1, in_place);
  }
}

// Tensors across the edges of chunks, one of them empty, two that begin in the same chunk.
TEST(StateDonation, TrackedTensorsAreCopiedToTheirPlaces) {
  const std::vector<std::size_t> sizes{7, kSnapshotChunk + 5, 0, 2 * kSnapshotChunk, 11};
  std::vector<std::vector<std::byte>> theirs, mine;
  TrackedState donor, newcomer;
  for (const std::size_t size : sizes) {
    theirs.push_back(random_bytes(size, size + 1));
    mine.push_back(random_bytes(size, size + 2));
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    donor.track(std::to_string(i), std::span(theirs[i]));
    newcomer.track(std::to_string(i), std::span(mine[i]));
  }
  ASSERT_TRUE(newcomer.memory_of(newcomer.capacity()).has_value());
  EXPECT_FALSE(newcomer.memory_of(newcomer.capacity() - 1).has_value());
  Agent agent(3, donor.capacity());
  std::vector<std::jthread> members;
  for (const SlotIndex slot : {0, 1}) members.push_back(start_donor(agent, slot, donor));
  members.push_back(
      start(agent, 2, [&](Participant& self) { EXPECT_TRUE(adopt_state(self, newcomer).ok()); }));
  agent.welcome_all();
  agent.announce(1, {0, 1}, {2});
  members.clear();
  EXPECT_TRUE(mine == theirs);
}

TEST(StateDonation, StateOfZeroBytesIsHandedOverToo) {
  hand_over(1, 1, 0, false);
  hand_over(3, 2, 0, true);
}

// The donors' bytes differ here, so that the received state shows which donor wrote it.
TEST(StateDonation, EveryDonorWritesAnEqualShare) {
  const std::size_t size = 7 * kSnapshotChunk;
  Agent agent(4, size);
  std::vector<Bytes> states;
  std::vector<std::jthread> members;
  for (SlotIndex slot = 0; slot < 3; ++slot) states.emplace_back(pattern(size, slot));
  for (SlotIndex slot = 0; slot < 3; ++slot)
    members.push_back(start_donor(agent, slot, states[slot]));
  Bytes mine;
  members.push_back(
      start(agent, 3, [&](Participant& self) { EXPECT_TRUE(adopt_state(self, mine).ok()); }));
  agent.welcome_all();
  agent.announce(1, {0, 1, 2}, {3});
  members.clear();
  std::vector<int> authors;
  for (std::size_t at = 0; at < mine.bytes().size(); at += kSnapshotChunk) {
    authors.push_back(static_cast<int>(mine.bytes()[at]));
  }
  EXPECT_EQ(authors, (std::vector{0, 0, 1, 1, 2, 2, 2}));
}

class StateDonationFaultTest : public ::testing::Test {
 protected:
  // Slot 0 donates, then `damage`, then slot 1 adopts.
  Status adopt_after(const std::function<void()>& damage) {
    std::atomic<bool> damaged{false};
    Status status;
    std::jthread donor = start_donor(agent_, 0, donor_);
    std::jthread newcomer = start(agent_, 1, [&](Participant& self) {
      EXPECT_TRUE(eventually([&] { return damaged.load(); }));
      status = adopt_state(self, newcomer_);
    });
    agent_.welcome_all();
    agent_.announce(1, {0}, {1});
    donor.join();
    damage();
    damaged = true;
    newcomer.join();
    return status;
  }
  void expect_not_proved() {
    EXPECT_EQ(agent_.member_slot(1).proved.load(), 0U);
    EXPECT_EQ(agent_.member_slot(1).using_snapshot.load(), 0U);
  }

  static constexpr std::size_t kSize = 3 * kSnapshotChunk - 5;
  Agent agent_{2, kSize};
  Bytes donor_{random_bytes(kSize, 1)};
  Bytes newcomer_;
};

TEST_F(StateDonationFaultTest, WithoutDamageItWorks) {
  EXPECT_TRUE(adopt_after([] {}).ok());
  EXPECT_TRUE(newcomer_.bytes() == donor_.bytes());
}

TEST_F(StateDonationFaultTest, OneWrongBitIsFoundBeforeItIsLoaded) {
  const Status status = adopt_after([&] { agent_.arena().snapshot()[kSize - 1] ^= std::byte{4}; });
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("state: chunk 2 of the snapshot: got CRC32C "));
  EXPECT_EQ(newcomer_.loads, 0);
  expect_not_proved();
}

TEST_F(StateDonationFaultTest, OneWrongBitIsFoundWhereItLandedInPlace) {
  newcomer_.in_place = true;
  const Status status =
      adopt_after([&] { agent_.arena().snapshot()[kSnapshotChunk] ^= std::byte{4}; });
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("state: chunk 1 of the snapshot: got CRC32C "));
  expect_not_proved();
}

// Memory that does not keep all that is copied into it: pieces that overlap.
class Overlapping final : public State {
 public:
  explicit Overlapping(std::size_t size) : bytes_(size) {}
  [[nodiscard]] std::uint64_t capacity() const override { return bytes_.size(); }
  [[nodiscard]] base::Result<std::vector<std::span<const std::byte>>> save() override {
    return base::internal_error("not called");
  }
  [[nodiscard]] Status load(std::span<const std::byte>) override {
    return base::internal_error("not called");
  }
  [[nodiscard]] std::optional<std::vector<std::span<std::byte>>> memory_of(
      std::uint64_t /*bytes*/) override {
    const std::span<std::byte> all(bytes_);
    const auto twice = all.subspan(kSnapshotChunk, 8);
    return std::vector{all.first(kSnapshotChunk), twice, twice, all.subspan(kSnapshotChunk + 16)};
  }

 private:
  std::vector<std::byte> bytes_;
};

TEST_F(StateDonationFaultTest, AStateThatLandsWrongInPlaceIsNotProved) {
  Overlapping broken(kSize);
  std::jthread donor = start_donor(agent_, 0, donor_);
  std::jthread newcomer = start(agent_, 1, [&](Participant& self) {
    const Status status = adopt_state(self, broken);
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_EQ(status.message(),
              "state: chunk 1 differs after loading from what the World provided");
  });
  agent_.welcome_all();
  agent_.announce(1, {0}, {1});
  donor.join(), newcomer.join();
  expect_not_proved();
}

TEST_F(StateDonationFaultTest, ATrackedStateOfAnotherLengthIsNotLoaded) {
  std::vector<std::byte> fewer(kSize - 1);
  TrackedState tracked;
  tracked.track("weights", std::span(fewer));
  std::jthread donor = start_donor(agent_, 0, donor_);
  std::jthread newcomer = start(agent_, 1, [&](Participant& self) {
    const Status status = adopt_state(self, tracked);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("expected 786426 (weights:786426)"));
  });
  agent_.welcome_all();
  agent_.announce(1, {0}, {1});
  donor.join(), newcomer.join();
  expect_not_proved();
}

TEST_F(StateDonationFaultTest, ADamagedLengthIsFoundBeforeItIsLoaded) {
  const Status status = adopt_after([&] { agent_.arena().snapshot_used() = kSize + 1; });
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_EQ(status.message(), "state: the snapshot's length is damaged");
  EXPECT_EQ(newcomer_.loads, 0);
  expect_not_proved();
}

TEST_F(StateDonationFaultTest, AStateThatLandsWrongIsNotProved) {
  newcomer_.on_load = [](auto& bytes) { bytes[kSnapshotChunk] ^= std::byte{1}; };
  const Status status = adopt_after([] {});
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_EQ(status.message(), "state: chunk 1 differs after loading from what the World provided");
  expect_not_proved();
}

TEST_F(StateDonationFaultTest, AStateThatLandsTooShortIsNotProved) {
  newcomer_.on_load = [](auto& bytes) { bytes.pop_back(); };
  const Status status = adopt_after([] {});
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("786426 bytes after loading, expected 786427"));
  expect_not_proved();
}

TEST_F(StateDonationFaultTest, AStateThatOutgrewItsPlaceIsNotDonated) {
  Bytes grown(random_bytes(kSize + 1, 1));
  std::jthread newcomer = start(agent_, 1, [](Participant&) {});
  std::jthread donor = start(agent_, 0, [&](Participant& self) {
    const Status status = donate_state(self, grown);
    EXPECT_EQ(status.code(), Code::kResourceExhausted);
    EXPECT_EQ(status.message(),
              "state: 786428 bytes, expected at most the 786427 reserved at join()");
    EXPECT_EQ(self.own_slot().donated.load(), 0U);
  });
  agent_.welcome_all();
  agent_.announce(1, {0}, {1});
}

}  // namespace
}  // namespace regroup::elastic
