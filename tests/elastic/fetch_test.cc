// What rank 0 and the fetchers of hosts without donors tell each other in a job with a ledger.
#include "elastic/fetch.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "base/status.h"
#include "elastic/donors.h"

namespace regroup::elastic {
namespace {

using collective::Kind;
using collective::Operation;

// Records the messages of one rank, and has one for each receive.
class Messages final : public collective::Communicator {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 5; }
  [[nodiscard]] base::Result<collective::Request> start(const Operation&,
                                                        base::TimePoint) override {
    return refused();
  }
  [[nodiscard]] base::Status run(const Operation& operation, base::TimePoint) override {
    all.emplace_back(operation.kind, operation.root);
    return answer;
  }
  [[nodiscard]] collective::TreeReducer& tree_reducer() override { std::abort(); }
  [[nodiscard]] base::Result<std::unique_ptr<Communicator>> split(int, base::TimePoint) override {
    return refused();
  }

  std::vector<std::pair<Kind, int>> all;
  base::Status answer;

 private:
  [[nodiscard]] base::Result<bool> test(std::uint64_t) override { return refused(); }
  [[nodiscard]] base::Status wait(std::uint64_t) override { return refused(); }
  static base::Status refused() { return base::internal_error("not expected"); }
};

// Donors on hosts 0 and 1; joining members on hosts 1, 2 (two) and 3.
proto::World world() {
  proto::World out{.generation = 2, .resume = proto::Position::of(7)};
  const std::vector<std::pair<std::uint32_t, bool>> hosts = {{0, false}, {1, false}, {1, true},
                                                             {2, true},  {2, true},  {3, true}};
  for (const auto& [host, needs] : hosts) {
    const auto number = static_cast<proto::SlotIndex>(out.members.size());
    out.members.push_back({.id = number,
                           .slot_id = {.node = proto::NodeId{host}, .slot = number},
                           .needs_state = needs});
  }
  return out;
}

TEST(Fetch, Rank0PermitsTheFetcherOfEachHostWithoutDonors) {
  EXPECT_EQ(all_fetchers(world()), (std::vector{3, 5}));
  Messages messages;
  ASSERT_TRUE(permit_fetchers(world(), messages, {}).ok());
  EXPECT_EQ(messages.all, (std::vector<std::pair<Kind, int>>{{Kind::kSend, 3}, {Kind::kSend, 5}}));
  messages.answer = base::revoked("over");
  EXPECT_EQ(permit_fetchers(world(), messages, {}).code(), base::Code::kRevoked);
}

TEST(Fetch, AFetcherWaitsForRank0) {
  Messages messages;
  ASSERT_TRUE(await_permit(world(), messages, {}).ok());
  EXPECT_EQ(messages.all, (std::vector<std::pair<Kind, int>>{{Kind::kReceive, 0}}));
  messages.answer = base::revoked("over");
  EXPECT_EQ(await_permit(world(), messages, {}).code(), base::Code::kRevoked);
}

// Such a rank 0 has no line to write.
TEST(Fetch, NobodyWaitsForARank0WithoutState) {
  for (const bool replays : {false, true}) {
    proto::World other = world();
    other.members[0].needs_state = !replays;
    other.members[0].replays = replays;
    Messages messages;
    EXPECT_TRUE(permit_fetchers(other, messages, {}).ok());
    EXPECT_TRUE(await_permit(other, messages, {}).ok());
    EXPECT_TRUE(messages.all.empty());
  }
}

}  // namespace
}  // namespace regroup::elastic
