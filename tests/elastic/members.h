// Members for tests of donors and newcomers: real participants, one thread (or process) each, over
// one arena. The test is the agent: it assigns slots, announces Worlds, revokes them, and marks
// members dead.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "elastic/state_donation.h"
#include "tests/collective/harness.h"
#include "tests/elastic/agent.h"

namespace regroup::elastic::testing {

inline constexpr std::chrono::seconds kTimeout{30};

inline std::vector<std::byte> random_bytes(std::size_t size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

// A state of two pieces, so that pieces and chunks do not align. Calls back into the test when it
// is saved or loaded.
class Bytes final : public State {
 public:
  explicit Bytes(std::vector<std::byte> bytes = {}) : bytes_(std::move(bytes)) {}

  [[nodiscard]] std::uint64_t capacity() const override { return bytes_.size(); }
  [[nodiscard]] base::Result<std::vector<std::span<const std::byte>>> save() override {
    if (on_save) on_save();
    const std::span<const std::byte> all(bytes_);
    return std::vector{all.first(all.size() / 3), all.subspan(all.size() / 3)};
  }
  [[nodiscard]] base::Status load(std::span<const std::byte> bytes) override {
    loads += 1;
    bytes_.assign(bytes.begin(), bytes.end());
    if (on_load) on_load(bytes_);
    return {};
  }
  [[nodiscard]] std::optional<std::vector<std::span<std::byte>>> memory_of(
      std::uint64_t bytes) override {
    if (!in_place) return std::nullopt;
    if (on_memory) on_memory();
    bytes_.resize(bytes);
    const std::span<std::byte> all(bytes_);
    return std::vector{all.first(all.size() / 3), all.subspan(all.size() / 3)};
  }
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }

  bool in_place = false;
  std::function<void()> on_save, on_memory;
  std::function<void(std::vector<std::byte>&)> on_load;
  int loads = 0;

 private:
  std::vector<std::byte> bytes_;
};

// Runs a member: connects, enters generation 1, calls `body`.
inline void live(const std::string& agent, proto::SlotIndex slot,
                 const std::function<void(Participant&)>& body) {
  Environment env;
  env.agent_socket = agent;
  env.member = slot;
  auto self = Participant::connect(env, {}, {}, kTimeout);
  ASSERT_TRUE(self.ok()) << self.status().to_string();
  const auto joined = (*self)->regroup();
  ASSERT_TRUE(joined.ok()) << joined.status().to_string();
  body(**self);
}

// Enters generation `g` after a revoke.
inline void follow(Participant& self, proto::Generation g) {
  const auto joined = self.regroup();
  ASSERT_TRUE(joined.ok()) << joined.status().to_string();
  ASSERT_EQ(self.world().generation, g);
}

// Waits until `moment()` is true. If it stays false, fails the test and makes the members end.
inline void await(Agent& agent, const std::function<bool()>& moment) {
  if (collective::testing::eventually(moment)) return;
  ADD_FAILURE() << "what was waited for did not happen";
  agent.hang_up();
}

inline std::jthread start(Agent& agent, proto::SlotIndex slot,
                          std::function<void(Participant&)> body) {
  return std::jthread([&agent, slot, body = std::move(body)] { live(agent.path(), slot, body); });
}

// Starts a member that donates `state` in generation 1 and, if `again`, in generation 2.
inline std::jthread start_donor(Agent& agent, proto::SlotIndex slot, State& state,
                                bool again = false) {
  return start(agent, slot, [&state, again](Participant& self) {
    const base::Status donated = donate_state(self, state);
    ASSERT_TRUE(donated.ok()) << donated.to_string();
    if (!again) return;
    follow(self, 2);
    EXPECT_TRUE(donate_state(self, state).ok());
  });
}

inline std::vector<std::byte> pattern(std::size_t size, int value) {
  return std::vector<std::byte>(size, static_cast<std::byte>(value));
}

}  // namespace regroup::elastic::testing
