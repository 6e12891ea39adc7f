// What a process that will become an agent learns from the messages that wait for it.
#include "launcher/agent/control_message.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace regroup::agent {
namespace {

class ControlMessageTest : public testing::Test {
 protected:
  ControlMessageTest() {
    auto pair = control_sockets();
    EXPECT_TRUE(pair.ok());
    agent_ = std::move(pair->second);
    guardian_.emplace(
        loop_, std::move(pair->first), [](ControlMessage, std::int32_t, base::Fd) {}, [] {});
  }
  bool end_requested() const { return agent::end_requested(agent_.get()); }

  boost::asio::io_context loop_{1};
  base::Fd agent_;
  std::optional<ControlSocket> guardian_;
};

TEST_F(ControlMessageTest, WithoutMessagesNoEndIsRequested) { EXPECT_FALSE(end_requested()); }

// One that died while agents came up was restarted, perhaps more than once.
TEST_F(ControlMessageTest, CoordinatorsAndSignalsStayForTheAgent) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const base::Fd theirs(pipe[0]), ours(pipe[1]);
  for (std::int32_t incarnation = 1; incarnation <= 3; ++incarnation)
    ASSERT_TRUE(guardian_->send(ControlMessage::kCoordinator, incarnation, ours.get()));
  ASSERT_TRUE(guardian_->send(ControlMessage::kSignal, 10));
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(end_requested());

  std::vector<std::pair<ControlMessage, std::int32_t>> heard;
  ssize_t written = 0;
  const ControlSocket agent(
      loop_, std::move(agent_),
      [&](ControlMessage message, std::int32_t value, base::Fd fd) {
        heard.emplace_back(message, value);
        if (message == ControlMessage::kCoordinator) written += ::write(fd.get(), "c", 1);
        if (message == ControlMessage::kSignal) loop_.stop();
      },
      [] {});
  loop_.run_for(std::chrono::seconds(10));
  const std::vector<std::pair<ControlMessage, std::int32_t>> said{{ControlMessage::kCoordinator, 1},
                                                                  {ControlMessage::kCoordinator, 2},
                                                                  {ControlMessage::kCoordinator, 3},
                                                                  {ControlMessage::kSignal, 10}};
  EXPECT_EQ(heard, said);
  std::array<char, 8> bytes{};
  EXPECT_EQ(written, 3);
  EXPECT_EQ(::read(theirs.get(), bytes.data(), bytes.size()), 3);
}

TEST_F(ControlMessageTest, AnEndIsSeenAfterOtherMessages) {
  for (const ControlMessage message : {ControlMessage::kStop, ControlMessage::kKill}) {
    ASSERT_TRUE(guardian_->send(ControlMessage::kCoordinator, 1));
    EXPECT_FALSE(end_requested());
    ASSERT_TRUE(guardian_->send(message, 15));
    EXPECT_TRUE(end_requested());
    EXPECT_TRUE(end_requested());
    discard_control_messages(agent_.get());
    EXPECT_FALSE(end_requested());
  }
}

TEST_F(ControlMessageTest, TheDeathOfTheGuardianRequestsTheEnd) {
  ASSERT_TRUE(guardian_->send(ControlMessage::kCoordinator, 1));
  guardian_.reset();
  EXPECT_TRUE(end_requested());
}

}  // namespace
}  // namespace regroup::agent
