// PMI-1 over its sockets.
#include "tools/pmi/pmi1_service.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

namespace regroup::pmi {
namespace {

constexpr int kCommands = 30000;

struct Pmi1ServiceTest : testing::Test {
  boost::asio::io_context loop;
  Pmi1Service service{loop, "job", {}};
  base::Fd client;

  Pmi1ServiceTest() {
    service.open_space({0, 1, false, {1}, 0, {}}, {});
    auto connected = service.connect({0, 0}, false);
    EXPECT_TRUE(connected.ok());
    client = std::move(connected->fd);
  }

  // Whole lines that have come by now.
  int take_answers() {
    std::array<char, 65536> bytes;
    int lines = 0;
    for (ssize_t count = 1; count > 0;) {
      loop.poll();
      count = ::recv(client.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
      lines += static_cast<int>(
          std::count(bytes.data(), bytes.data() + std::max<ssize_t>(count, 0), '\n'));
    }
    return lines;
  }

  void ask(const std::string& text) {
    for (std::size_t at = 0; at < text.size();) {
      const ssize_t count =
          ::send(client.get(), text.data() + at, text.size() - at, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (count > 0) at += static_cast<std::size_t>(count);
      if (count <= 0 && errno != EAGAIN) return;
      loop.poll();
    }
  }
};

// More than its socket holds: none is lost, none is torn.
TEST_F(Pmi1ServiceTest, AnswersWaitForAClientThatReadsLate) {
  for (int i = 0; i < kCommands; ++i) ask("cmd=get_my_kvsname\n");
  EXPECT_EQ(take_answers(), kCommands);
}

TEST_F(Pmi1ServiceTest, AClientThatNeverReadsLosesItsConnection) {
  for (int i = 0; i < 10 * kCommands; ++i) ask("cmd=get_my_kvsname\n");
  EXPECT_LT(take_answers(), 10 * kCommands);
  std::array<char, 1> byte;
  EXPECT_EQ(::recv(client.get(), byte.data(), 1, MSG_DONTWAIT), 0);
}

TEST_F(Pmi1ServiceTest, NamesOfAClosedSpaceAreRemoved) {
  const auto act = [this](NameOperation operation, const char* name, std::uint32_t space) {
    return service.act_on_names({0, operation, name, "port"}, space);
  };
  EXPECT_TRUE(act(NameOperation::kPmi1Publish, "first", 0));
  EXPECT_TRUE(act(NameOperation::kPmi1Publish, "second", 1));
  service.close_space(0);
  EXPECT_TRUE(act(NameOperation::kPmi1Publish, "first", 1));
  EXPECT_FALSE(act(NameOperation::kPmi1Publish, "second", 1));
}

}  // namespace
}  // namespace regroup::pmi
