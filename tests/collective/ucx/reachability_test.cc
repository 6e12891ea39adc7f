// Whether a host answers, by the kernel's state of a TCP connection.
#include "collective/ucx/reachability.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <thread>

#include "base/fd.h"

namespace regroup::collective::ucx_reachability {
namespace {

using namespace std::chrono_literals;

class Reachability : public ::testing::Test {
 protected:
  // Connects to a process that sends each byte back.
  void SetUp() override {
    const base::Fd listener(::socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof at;
    auto* const address = reinterpret_cast<sockaddr*>(&at);
    ASSERT_EQ(::bind(listener.get(), address, bytes), 0);
    ASSERT_EQ(::listen(listener.get(), 1), 0);
    ASSERT_EQ(::getsockname(listener.get(), address, &bytes), 0);
    echo_ = ::fork();
    if (echo_ == 0) {
      const base::Fd peer(::accept(listener.get(), nullptr, nullptr));
      char byte = 0;
      while (::read(peer.get(), &byte, 1) == 1 && ::write(peer.get(), &byte, 1) == 1) {
      }
      ::_exit(0);
    }
    connection_ = base::Fd(::socket(AF_INET, SOCK_STREAM, 0));
    ASSERT_EQ(::connect(connection_.get(), address, bytes), 0);
    const int on = 1;
    ASSERT_EQ(::setsockopt(connection_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), 0);
  }
  void TearDown() override {
    ::kill(echo_, SIGKILL);
    ::waitpid(echo_, nullptr, 0);
  }

  void send_byte() const { ASSERT_EQ(::write(connection_.get(), "a", 1), 1); }
  void exchange_byte() const {
    send_byte();
    char byte = 0;
    ASSERT_EQ(::read(connection_.get(), &byte, 1), 1);
  }

  pid_t echo_ = 0;
  base::Fd connection_;
};

// The kernel of a process that answers each message delays its acknowledgement, to send it with the
// answer.
TEST_F(Reachability, AHostAnswersThatHasNotYetAcknowledgedWhatWasJustSent) {
  const ucx::PeerAddress host{AF_INET, 0, 8, {127, 0, 0, 1}};
  for (int i = 0; i < 64; ++i) exchange_byte();
  ::kill(echo_, SIGSTOP);
  for (int attempt = 0; attempt < 3; ++attempt) {
    std::this_thread::sleep_for(300ms);  // all is acknowledged, the last one more than 250 ms ago
    send_byte();
    EXPECT_TRUE(ucx::host_answers({&host, 1}, 250ms));
  }
}

}  // namespace
}  // namespace regroup::collective::ucx_reachability
