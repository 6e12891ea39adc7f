// Descriptors over a socket: they arrive in their order, and what is no message is refused.
#include "base/descriptor_message.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <string>
#include <vector>

namespace regroup::base {
namespace {

TimePoint soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(60); }

struct Pair {
  Pair() {
    std::array<int, 2> fds{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()), 0);
    here.reset(fds[0]);
    there.reset(fds[1]);
  }
  Fd here, there;
};

TEST(DescriptorMessage, CarriesDescriptorsInTheirOrder) {
  const Pair pair;
  std::vector<Fd> pipes;
  std::vector<int> sent;
  for (std::size_t i = 0; i < kMostDescriptors / 10; ++i) {
    std::array<int, 2> fds{};
    ASSERT_EQ(::pipe(fds.data()), 0);
    ASSERT_EQ(::write(fds[1], &i, sizeof i), static_cast<ssize_t>(sizeof i));
    sent.push_back(pipes.emplace_back(fds[0]).get());
    pipes.emplace_back(fds[1]);
  }
  ASSERT_EQ(send_descriptors(pair.here.get(), "client 3", sent).to_string(), "ok");
  const auto got = receive_descriptors(pair.there.get(), soon());
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  EXPECT_EQ(got->text, "client 3");
  ASSERT_EQ(got->descriptors.size(), sent.size());
  for (std::size_t i = 0; i < sent.size(); ++i) {
    std::size_t read = 0;
    ASSERT_EQ(::read(got->descriptors[i].get(), &read, sizeof read),
              static_cast<ssize_t>(sizeof read));
    EXPECT_EQ(read, i);
  }
  ASSERT_TRUE(send_descriptors(pair.here.get(), "", {}).ok());
  EXPECT_EQ(receive_descriptors(pair.there.get(), soon())->text, "");
}

TEST(DescriptorMessage, RefusesWhatIsNoMessage) {
  Pair pair;
  const std::vector<int> many(kMostDescriptors + 1, 0);
  EXPECT_EQ(send_descriptors(pair.here.get(), "", many).code(), Code::kInvalidArgument);
  EXPECT_EQ(send_descriptors(pair.here.get(), "a\nb", {}).code(), Code::kInvalidArgument);
  EXPECT_EQ(receive_descriptors(pair.there.get(), std::chrono::steady_clock::now()).code(),
            Code::kDeadlineExceeded);
  const std::string endless(kMostDescriptorText, 'x');
  ASSERT_EQ(::send(pair.here.get(), endless.data(), endless.size(), 0),
            static_cast<ssize_t>(endless.size()));
  EXPECT_EQ(receive_descriptors(pair.there.get(), soon()).code(), Code::kDataLoss);
  pair.here.reset();
  EXPECT_EQ(receive_descriptors(pair.there.get(), soon()).code(), Code::kPeerLost);
}

}  // namespace
}  // namespace regroup::base
