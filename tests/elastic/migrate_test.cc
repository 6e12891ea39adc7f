// State from donors to newcomers: real participants, one thread (or process) each, over one arena. The test
// is the agent: it hands out lines, announces Worlds, revokes them, and says who is dead.
#include "elastic/migrate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "tests/collective/harness.h"
#include "tests/elastic/agent.h"

namespace regroup::elastic {
namespace {

using collective::testing::eventually;
using collective::testing::revoke_all;
using core::Code;
using core::kSnapshotChunk;
using core::SlotIndex;
using core::Status;
using elastic::testing::Agent;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kPatience{30};

std::vector<std::byte> random_bytes(std::size_t size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

// Bytes in two pieces, so that chunks and pieces overlap; the test looks in when they are saved or loaded.
class Bytes final : public State {
 public:
  explicit Bytes(std::vector<std::byte> bytes = {}) : bytes_(std::move(bytes)) {}

  [[nodiscard]] std::uint64_t capacity() const override { return bytes_.size(); }
  [[nodiscard]] core::Result<std::vector<std::span<const std::byte>>> save() override {
    if (on_save) on_save();
    const std::span<const std::byte> all(bytes_);
    return std::vector{all.first(all.size() / 3), all.subspan(all.size() / 3)};
  }
  [[nodiscard]] Status load(std::span<const std::byte> bytes) override {
    loads += 1;
    bytes_.assign(bytes.begin(), bytes.end());
    if (on_load) on_load(bytes_);
    return {};
  }
  [[nodiscard]] std::optional<std::vector<std::span<std::byte>>> memory_of(std::uint64_t bytes) override {
    if (!in_place) return std::nullopt;
    bytes_.resize(bytes);
    const std::span<std::byte> all(bytes_);
    return std::vector{all.first(all.size() / 3), all.subspan(all.size() / 3)};
  }
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }

  bool in_place = false;
  std::function<void()> on_save;
  std::function<void(std::vector<std::byte>&)> on_load;
  int loads = 0;

 private:
  std::vector<std::byte> bytes_;
};

// The life of a member: connects and enters generation 1, then `body`.
void live(const std::string& agent, SlotIndex slot, const std::function<void(Participant&)>& body) {
  Environment env;
  env.agent_socket = agent;
  env.member = slot;
  auto self = Participant::connect(env, {}, kPatience);
  ASSERT_TRUE(self.ok()) << self.status().to_string();
  const auto joined = (*self)->regroup();
  ASSERT_TRUE(joined.ok()) << joined.status().to_string();
  body(**self);
}

// Enters generation `g` after a revoke.
void follow(Participant& self, core::Generation g) {
  const auto joined = self.regroup();
  ASSERT_TRUE(joined.ok()) << joined.status().to_string();
  ASSERT_EQ(self.world().generation, g);
}

// Waits for a moment in the arena. If it does not come, the members end too.
void await(Agent& agent, const std::function<bool()>& moment) {
  if (eventually(moment)) return;
  ADD_FAILURE() << "what was waited for did not happen";
  agent.hang_up();
}

std::jthread start(Agent& agent, SlotIndex slot, std::function<void(Participant&)> body) {
  return std::jthread([&agent, slot, body = std::move(body)] { live(agent.path(), slot, body); });
}

// A donor of `state` from generation 1 on: of 1 alone, and of 2 if `again`.
std::jthread start_donor(Agent& agent, SlotIndex slot, State& state, bool again = false) {
  return start(agent, slot, [&state, again](Participant& self) {
    const Status donated = donate_state(self, state);
    ASSERT_TRUE(donated.ok()) << donated.to_string();
    if (!again) return;
    follow(self, 2);
    EXPECT_TRUE(donate_state(self, state).ok());
  });
}

std::vector<std::byte> pattern(std::size_t size, int value) {
  return std::vector<std::byte>(size, static_cast<std::byte>(value));
}

void hand_over(SlotIndex donors, SlotIndex newcomers, std::size_t size, bool in_place) {
  SCOPED_TRACE(::testing::Message() << donors << " donors, " << newcomers << " newcomers, " << size
                                    << " bytes");
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
  for (const SlotIndex slot : from) EXPECT_EQ(agent.line(slot).donated.load(), 1U);
  for (const SlotIndex slot : to) {
    EXPECT_TRUE(states[slot].bytes() == states[0].bytes());
    EXPECT_EQ(states[slot].loads, in_place && size > 0 ? 0 : 1);
    EXPECT_EQ(agent.line(slot).proved.load(), 1U);
    EXPECT_EQ(agent.line(slot).adopting.load(), 0U);
  }
}

TEST(Migrate, NewcomersGetTheBytesOfAllDonors) {
  for (SlotIndex donors = 1; donors <= 3; ++donors) {
    for (const std::size_t size :
         {std::size_t{1}, kSnapshotChunk - 1, kSnapshotChunk, 3 * kSnapshotChunk, 5 * kSnapshotChunk + 7}) {
      for (const bool in_place : {false, true}) hand_over(donors, 1, size, in_place);
    }
    for (const bool in_place : {false, true}) hand_over(donors, 2, 2 * kSnapshotChunk + 1, in_place);
  }
}

TEST(Migrate, StateOfZeroBytesIsHandedOverToo) {
  hand_over(1, 1, 0, false);
  hand_over(3, 2, 0, true);
}

// What a newcomer receives tells who wrote it: here the donors' bytes differ.
TEST(Migrate, EveryDonorWritesAnEqualShare) {
  const std::size_t size = 7 * kSnapshotChunk;
  Agent agent(4, size);
  std::vector<Bytes> states;
  std::vector<std::jthread> members;
  for (SlotIndex slot = 0; slot < 3; ++slot) states.emplace_back(pattern(size, slot));
  for (SlotIndex slot = 0; slot < 3; ++slot) members.push_back(start_donor(agent, slot, states[slot]));
  Bytes mine;
  members.push_back(start(agent, 3, [&](Participant& self) { EXPECT_TRUE(adopt_state(self, mine).ok()); }));
  agent.welcome_all();
  agent.announce(1, {0, 1, 2}, {3});
  members.clear();
  std::vector<int> authors;
  for (std::size_t at = 0; at < mine.bytes().size(); at += kSnapshotChunk) {
    authors.push_back(static_cast<int>(mine.bytes()[at]));
  }
  EXPECT_EQ(authors, (std::vector{0, 0, 1, 1, 2, 2, 2}));
}

class MigrateFaultTest : public ::testing::Test {
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
    EXPECT_EQ(agent_.line(1).proved.load(), 0U);
    EXPECT_EQ(agent_.line(1).adopting.load(), 0U);
  }

  static constexpr std::size_t kSize = 3 * kSnapshotChunk - 5;
  Agent agent_{2, kSize};
  Bytes donor_{random_bytes(kSize, 1)};
  Bytes newcomer_;
};

TEST_F(MigrateFaultTest, WithoutDamageItWorks) {
  EXPECT_TRUE(adopt_after([] {}).ok());
  EXPECT_TRUE(newcomer_.bytes() == donor_.bytes());
}

TEST_F(MigrateFaultTest, OneWrongBitIsFoundBeforeItIsLoaded) {
  const Status status = adopt_after([&] { agent_.arena().snapshot()[kSize - 1] ^= std::byte{4}; });
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("state: chunk 2 of the snapshot has CRC32C "));
  EXPECT_EQ(newcomer_.loads, 0);
  expect_not_proved();
}

TEST_F(MigrateFaultTest, OneWrongBitIsFoundWhereItLandedInPlace) {
  newcomer_.in_place = true;
  const Status status = adopt_after([&] { agent_.arena().snapshot()[kSnapshotChunk] ^= std::byte{4}; });
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("state: chunk 1 of the snapshot has CRC32C "));
  expect_not_proved();
}

// Memory that does not keep all that is copied into it: pieces that overlap.
class Overlapping final : public State {
 public:
  explicit Overlapping(std::size_t size) : bytes_(size) {}
  [[nodiscard]] std::uint64_t capacity() const override { return bytes_.size(); }
  [[nodiscard]] core::Result<std::vector<std::span<const std::byte>>> save() override {
    return core::internal_error("not called");
  }
  [[nodiscard]] Status load(std::span<const std::byte>) override {
    return core::internal_error("not called");
  }
  [[nodiscard]] std::optional<std::vector<std::span<std::byte>>> memory_of(std::uint64_t /*bytes*/) override {
    const std::span<std::byte> all(bytes_);
    const auto twice = all.subspan(kSnapshotChunk, 8);
    return std::vector{all.first(kSnapshotChunk), twice, twice, all.subspan(kSnapshotChunk + 16)};
  }

 private:
  std::vector<std::byte> bytes_;
};

TEST_F(MigrateFaultTest, AStateThatLandsWrongInPlaceIsNotProved) {
  Overlapping broken(kSize);
  std::jthread donor = start_donor(agent_, 0, donor_);
  std::jthread newcomer = start(agent_, 1, [&](Participant& self) {
    const Status status = adopt_state(self, broken);
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_EQ(status.message(), "state: chunk 1 differs from the donors' after loading");
  });
  agent_.welcome_all();
  agent_.announce(1, {0}, {1});
  donor.join(), newcomer.join();
  expect_not_proved();
}

TEST_F(MigrateFaultTest, ATrackedStateOfAnotherLengthIsNotLoaded) {
  std::vector<std::byte> fewer(kSize - 1);
  TrackedState tracked;
  tracked.track("weights", std::span(fewer));
  std::jthread donor = start_donor(agent_, 0, donor_);
  std::jthread newcomer = start(agent_, 1, [&](Participant& self) {
    const Status status = adopt_state(self, tracked);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("786426 bytes are tracked (weights:786426)"));
  });
  agent_.welcome_all();
  agent_.announce(1, {0}, {1});
  donor.join(), newcomer.join();
  expect_not_proved();
}

TEST_F(MigrateFaultTest, ADamagedLengthIsFoundBeforeItIsLoaded) {
  const Status status = adopt_after([&] { agent_.arena().snapshot_used() = kSize + 1; });
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_EQ(status.message(), "state: the snapshot's length is damaged");
  EXPECT_EQ(newcomer_.loads, 0);
  expect_not_proved();
}

TEST_F(MigrateFaultTest, AStateThatLandsWrongIsNotProved) {
  newcomer_.on_load = [](auto& bytes) { bytes[kSnapshotChunk] ^= std::byte{1}; };
  const Status status = adopt_after([] {});
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_EQ(status.message(), "state: chunk 1 differs from the donors' after loading");
  expect_not_proved();
}

TEST_F(MigrateFaultTest, AStateThatLandsTooShortIsNotProved) {
  newcomer_.on_load = [](auto& bytes) { bytes.pop_back(); };
  const Status status = adopt_after([] {});
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("786426 bytes after loading, the donors have 786427"));
  expect_not_proved();
}

TEST_F(MigrateFaultTest, AStateThatOutgrewItsPlaceIsNotDonated) {
  Bytes grown(random_bytes(kSize + 1, 1));
  std::jthread newcomer = start(agent_, 1, [](Participant&) {});
  std::jthread donor = start(agent_, 0, [&](Participant& self) {
    const Status status = donate_state(self, grown);
    EXPECT_EQ(status.code(), Code::kResourceExhausted);
    EXPECT_EQ(status.message(), "state of 786428 bytes outgrew the 786427 reserved at the start");
    EXPECT_EQ(self.line().donated.load(), 0U);
  });
  agent_.welcome_all();
  agent_.announce(1, {0}, {1});
}

// A newcomer of a generation that is over, then of the next.
std::jthread start_twice(Agent& agent, SlotIndex slot, Bytes& state, int loads_before) {
  return start(agent, slot, [&state, loads_before](Participant& self) {
    ASSERT_EQ(adopt_state(self, state).code(), Code::kRevoked);
    EXPECT_EQ(self.line().proved.load(), 0U);
    EXPECT_EQ(self.line().adopting.load(), 0U);
    EXPECT_EQ(state.loads, loads_before);
    follow(self, 2);
    EXPECT_TRUE(adopt_state(self, state).ok());
    EXPECT_EQ(self.line().proved.load(), 2U);
  });
}

TEST(MigrateRevoke, EndsDonorsAndNewcomersInTheMiddle) {
  Agent agent(3, 4 * kSnapshotChunk);
  Bytes first(random_bytes(4 * kSnapshotChunk, 1)), second = first, mine;
  std::atomic<bool> revoked{false};
  second.on_save = [&] { EXPECT_TRUE(eventually([&] { return revoked.load(); })); };
  std::jthread donor = start_donor(agent, 0, first, true);
  std::jthread slow = start(agent, 1, [&](Participant& self) {
    ASSERT_EQ(donate_state(self, second).code(), Code::kRevoked);
    EXPECT_EQ(self.line().donated.load(), 0U);
    follow(self, 2);
    EXPECT_TRUE(donate_state(self, second).ok());
  });
  std::jthread newcomer = start_twice(agent, 2, mine, 0);
  agent.welcome_all();
  agent.announce(1, {0, 1}, {2});
  await(agent, [&] {
    return agent.line(0).donated.load() == 1 && agent.line(2).adopting.load() == 1 && agent.sleeps(2);
  });
  revoke_all(agent.arena(), 1);
  revoked = true;
  agent.announce(2, {0, 1}, {2});
  donor.join(), slow.join(), newcomer.join();
  EXPECT_TRUE(mine.bytes() == first.bytes());
}

TEST(MigrateRevoke, AStateThatWasLoadedMeanwhileDoesNotCount) {
  Agent agent(2, kSnapshotChunk);
  Bytes theirs(random_bytes(kSnapshotChunk, 1)), mine;
  mine.on_load = [&](auto&) { revoke_all(agent.arena(), 1), mine.on_load = nullptr; };
  std::jthread donor = start_donor(agent, 0, theirs, true);
  std::jthread newcomer = start_twice(agent, 1, mine, 1);
  agent.welcome_all();
  agent.announce(1, {0}, {1});
  await(agent, [&] { return agent.line(1).revoked_up_to.load() == 1; });
  agent.announce(2, {0}, {1});
  donor.join(), newcomer.join();
  EXPECT_TRUE(mine.bytes() == theirs.bytes());
}

// The newcomer of generation 1 still reads the snapshot when that of 2 is to be written.
TEST(MigrateRevoke, DonorsWaitForReadersOfAnOlderGeneration) {
  Agent agent(2, kSnapshotChunk);
  Bytes theirs(random_bytes(kSnapshotChunk, 1)), mine;
  mine.on_load = [&](auto&) {
    mine.on_load = nullptr;
    revoke_all(agent.arena(), 1);
    agent.announce(2, {0}, {1});
    const auto in_second = [&] {
      return core::load_state<core::RealPolicy>(agent.line(0).state).generation == 2;
    };
    EXPECT_TRUE(
        eventually([&] { return agent.line(0).donated.load() == 2 || (in_second() && agent.sleeps(0)); }));
    EXPECT_EQ(agent.line(0).donated.load(), 1U);
  };
  std::jthread donor = start_donor(agent, 0, theirs, true);
  std::jthread newcomer = start_twice(agent, 1, mine, 1);
  agent.welcome_all();
  agent.announce(1, {0}, {1});
}

// Killed before its share is written: the next generation does without it.
TEST(MigrateRevoke, ADonorThatDiesIsReplacedByTheOthers) {
  const std::size_t size = 5 * kSnapshotChunk;
  Agent agent(3, size);
  Bytes theirs(random_bytes(size, 1)), mine;
  const pid_t victim = ::fork();
  if (victim == 0) {
    theirs.on_save = [] { ::raise(SIGKILL); };
    live(agent.path(), 1, [&](Participant& self) { (void)donate_state(self, theirs); });
    ::_exit(1);
  }
  std::jthread donor = start_donor(agent, 0, theirs, true);
  std::jthread newcomer = start_twice(agent, 2, mine, 0);
  agent.welcome_all();
  agent.announce(1, {0, 1}, {2});
  int status = 0;
  EXPECT_EQ(::waitpid(victim, &status, 0), victim);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  await(agent, [&] { return agent.line(2).adopting.load() == 1 && agent.sleeps(2); });
  agent.line(1).dead = 1;
  revoke_all(agent.arena(), 1);
  agent.announce(2, {0}, {2});
  donor.join(), newcomer.join();
  EXPECT_EQ(agent.line(1).donated.load(), 0U);
  EXPECT_TRUE(mine.bytes() == theirs.bytes());
}

}  // namespace
}  // namespace regroup::elastic
