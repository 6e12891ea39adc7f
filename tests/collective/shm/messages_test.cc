// Messages in a fixed order: one thread advances three members, one call at a time.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "collective/shm/bounce_buffer.h"
#include "collective/shm/factory.h"
#include "tests/collective/harness.h"

namespace regroup::collective::testing::shm_messages {
namespace {

class ShmMessages : public ::testing::Test {
 protected:
  ShmMessages() {
    for (proto::SlotIndex slot = 0; slot < 3; ++slot) {
      auto comm = shm::make_shm(arena_, world_, {0, slot});
      EXPECT_TRUE(comm.ok()) << comm.status().to_string();
      members_.push_back(std::move(comm).value());
    }
  }
  Request start(std::size_t member, const Operation& operation) {
    auto request = members_[member]->start(operation, soon());
    EXPECT_TRUE(request.ok()) << request.status().to_string();
    return std::move(request).value();
  }
  static bool done(Request& request) {
    const auto tested = request.test();
    EXPECT_TRUE(tested.ok()) << tested.status().to_string();
    return tested.ok() && *tested;
  }

  const shmem::Arena arena_ = make_arena({.slots = 3});
  const proto::World world_ = make_world(1, 3);
  std::vector<std::unique_ptr<Communicator>> members_;
};

// The waiting receiver rang long ago, and nobody rings again when its message can be sent.
TEST_F(ShmMessages, QueuedMessagesAreSentOnTheSendersTurn) {
  const auto small = make_leaf(Dtype::kUint8, 100, 1);
  const auto large = make_leaf(Dtype::kUint8, 3 * shm::kMessageChunk, 2);
  std::vector<std::byte> at_0(small.size()), at_1(large.size());

  Request receive_1 = start(1, Operation::receive(at_1, 2));
  Request send_0 = start(2, Operation::send(small, 0));
  Request send_1 = start(2, Operation::send(large, 1));
  EXPECT_FALSE(done(send_1));  // two of three chunks
  Request receive_0 = start(0, Operation::receive(at_0, 2));
  EXPECT_FALSE(done(receive_1));
  EXPECT_FALSE(done(send_1));
  EXPECT_TRUE(done(receive_1));

  EXPECT_TRUE(done(send_1));
  EXPECT_TRUE(done(receive_0));
  EXPECT_TRUE(done(send_0));
  EXPECT_EQ(at_0, small);
  EXPECT_EQ(at_1, large);
}

}  // namespace
}  // namespace regroup::collective::testing::shm_messages
