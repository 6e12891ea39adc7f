// Members whose first addresses do not lead to them: nothing listens there, no packet comes back,
// or another process accepts the connection and sends nothing, or nonsense.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "collective/ucx/peer_address.h"
#include "tests/collective/exchange.h"
#include "tests/collective/harness.h"
#include "tests/collective/ucx/job.h"

namespace regroup::collective::testing::ucx_connect {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr int kRanks = 3;

// An address at 127.0.0.2 with a port that no member has.
class DeadAddress {
 public:
  DeadAddress() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    ucx::SocketAddress address = ucx::to_socket_address(address_);
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address.storage), address.bytes),
              0);
    EXPECT_EQ(
        ::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address.storage), &address.bytes),
        0);
    address_.port = ntohs(reinterpret_cast<const sockaddr_in&>(address.storage).sin_port);
  }
  [[nodiscard]] const ucx::PeerAddress& address() const { return address_; }
  // The kernel accepts up to `limit` connections, and drops the packets of more.
  void listen(int limit) { EXPECT_EQ(::listen(socket_.get(), limit), 0); }
  void fill() {
    listen(0);
    for (int i = 0; i < 4; ++i) {
      connections_.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      const ucx::SocketAddress address = ucx::to_socket_address(address_);
      static_cast<void>(::connect(connections_.back().get(),
                                  reinterpret_cast<const sockaddr*>(&address.storage),
                                  address.bytes));
    }
  }
  // Answers what comes on every connection with `text` until the object ends. A process of its own
  // does so, because ranks that are forked later do not inherit threads. It reads first: while UCX
  // 1.13 connects to what is no UCX it may fail an assertion of its own (docs/design/ucx_bugs.md).
  void answer(const std::string& text) {
    listen(64);
    server_ = fork_rank(0, [this, text](int) {
      std::vector<base::Fd> accepted;
      for (;;) {
        accepted.emplace_back(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        char first = 0;
        if (::recv(accepted.back().get(), &first, 1, 0) != 1) continue;
        static_cast<void>(::send(accepted.back().get(), text.data(), text.size(), MSG_NOSIGNAL));
      }
    });
  }
  // In a forked rank: closes the connections of the test.
  void close_connections() { connections_.clear(); }
  ~DeadAddress() {
    if (server_ < 0) return;
    ::kill(server_, SIGKILL);
    ::waitpid(server_, nullptr, 0);
  }
  DeadAddress(const DeadAddress&) = delete;
  DeadAddress& operator=(const DeadAddress&) = delete;

 private:
  ucx::PeerAddress address_{AF_INET, 0, 8, {127, 0, 0, 2}};
  base::Fd socket_;
  std::vector<base::Fd> connections_;
  pid_t server_ = -1;
};

struct Row {
  const char* name;
  void (*prepare)(DeadAddress&);
};
const Row kRows[] = {
    {"NothingListens", [](DeadAddress&) {}},
    {"NothingComesBack", [](DeadAddress& n) { n.fill(); }},
    {"AnotherSendsNothing", [](DeadAddress& n) { n.listen(64); }},
    {"AnotherSendsNonsense", [](DeadAddress& n) { n.answer(std::string(4096, 'x')); }},
};

// As from a host with more addresses than lead to it.
Readdress before_theirs(std::vector<ucx::PeerAddress> wrong, bool theirs) {
  return [wrong = std::move(wrong), theirs](const std::vector<std::byte>& address) {
    std::vector<ucx::PeerAddress> all = wrong;
    if (theirs) std::ranges::copy(ucx::decode(address), std::back_inserter(all));
    return ucx::encode(ucx::nonce_in(address), all, ucx::failure_reason_in(address));
  };
}

class UcxConnect : public ::testing::TestWithParam<Row> {
 protected:
  // Each rank is on a host of its own; calls `body` with the open communicator.
  static void run(DeadAddress& number, const std::function<void(Communicator&)>& body) {
    const auto job = make_ucx_job({0, 1, 2}, {.config = {{"TLS", "tcp"}}},
                                  before_theirs({number.address()}, true));
    run_all(Ranks::kProcesses, kRanks, [&](int rank) {
      number.close_connections();
      const auto mine = job->in_child();
      for (proto::Generation g = 1; g <= 2; ++g) {
        const auto comm = mine->open(make_world(g, kRanks), rank);
        ASSERT_TRUE(comm.ok()) << comm.status().to_string();
        body(**comm);
      }
    });
  }
};

void sum(Communicator& comm) {
  for (const std::size_t elements : {2, 100'000}) {
    const base::Status status =
        run_checked(comm, {Kind::kAllreduce, Dtype::kFloat32, Op::kSum, 0, elements}, 1, soon());
    EXPECT_EQ(status.to_string(), "ok");
  }
}

TEST_P(UcxConnect, TriesTheNextAddressAfterAFailure) {
  DeadAddress number;
  GetParam().prepare(number);
  run(number, sum);
}

// All kinds of dead addresses at once, and one of a network to which this host has no route.
TEST(UcxConnectAll, TriesAddressesUntilOneReachesTheMember) {
  DeadAddress numbers[std::size(kRows)];
  std::vector<ucx::PeerAddress> wrong{{AF_INET6, 4000, 64, {0xfd, 0x12, 0x34}}};
  for (std::size_t i = 0; i < std::size(kRows); ++i) {
    kRows[i].prepare(numbers[i]);
    wrong.push_back(numbers[i].address());
  }
  const auto job =
      make_ucx_job({0, 1, 2}, {.config = {{"TLS", "tcp"}}}, before_theirs(wrong, true));
  run_all(Ranks::kProcesses, kRanks, [&](int rank) {
    for (DeadAddress& number : numbers) number.close_connections();
    const auto mine = job->in_child();
    const auto comm = mine->open(make_world(1, kRanks), rank);
    ASSERT_TRUE(comm.ok()) << comm.status().to_string();
    sum(**comm);
  });
}

TEST_P(UcxConnect, EndsAtTheDeadlineIfNoAddressReachesTheMember) {
  DeadAddress number;
  GetParam().prepare(number);
  const auto job = make_ucx_job({0, 1, 2}, {.config = {{"TLS", "tcp"}}},
                                before_theirs({number.address()}, false));
  run_all(Ranks::kProcesses, kRanks, [&](int rank) {
    const auto mine = job->in_child();
    const auto comm = mine->open(make_world(1, kRanks), rank);
    ASSERT_TRUE(comm.ok()) << comm.status().to_string();
    for (int other = 0; other < kRanks; ++other)
      ASSERT_TRUE(eventually([&] { return address_in(*mine, 1, other).has_value(); }));
    const base::Status status = (*comm)->barrier(base::SystemClock().now() + 1s);
    EXPECT_EQ(status.code(), base::Code::kDeadlineExceeded) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("did not arrive after"));
    const bool connects = rank < kRanks - 1;  // of two ranks the lower one does
    if (connects && GetParam().name == std::string("NothingListens")) {
      EXPECT_THAT(status.message(), HasSubstr("cannot connect to rank 2: "));
    }
  });
}

// As behind a firewall that lets these ports through, on one of several networks.
TEST(UcxListener, ListensOnTheRequestedInterface) {
  const auto job = make_ucx_job(
      {0, 1, 2},
      {.config = {{"TLS", "tcp"}, {"NET_DEVICES", "lo"}, {"TCP_PORT_RANGE", "21000-21063"}}});
  run_all(Ranks::kProcesses, kRanks, [&](int rank) {
    const auto mine = job->in_child();
    const auto comm = mine->open(make_world(1, kRanks), rank);
    ASSERT_TRUE(comm.ok()) << comm.status().to_string();
    sum(**comm);
    const auto addresses = ucx::decode(*address_in(*mine, 1, rank));
    ASSERT_EQ(addresses.size(), 1U);
    EXPECT_EQ(addresses[0], (ucx::PeerAddress{AF_INET, addresses[0].port, 8, {127, 0, 0, 1}}));
    EXPECT_GE(addresses[0].port, 21000);
    EXPECT_LE(addresses[0].port, 21063);
    ucx::PeerAddress elsewhere = addresses[0];
    elsewhere.address[3] = 2;
    const base::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const ucx::SocketAddress address = ucx::to_socket_address(elsewhere);
    EXPECT_NE(
        ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.bytes),
        0);
  });
}

TEST(UcxListener, ReportsThatNoPortIsFreeOrTheRangeIsEmpty) {
  DeadAddress taken;
  taken.listen(1);
  const std::string port = std::to_string(taken.address().port);
  run_all(Ranks::kProcesses, 1, [&](int) {  // in a forked process, since UCX starts threads
    const auto full =
        ucx::open_ucx({.config = {{"TLS", "tcp"}, {"TCP_PORT_RANGE", port + "-" + port}}});
    ASSERT_FALSE(full.ok());
    EXPECT_EQ(full.status().message(), "ucp_listener_create(ports " + port + "-" + port +
                                           " of UCX_TCP_PORT_RANGE): Device is busy");
    const auto odd = ucx::open_ucx({.config = {{"TLS", "tcp"}, {"TCP_PORT_RANGE", "9-1"}}});
    ASSERT_FALSE(odd.ok());
    EXPECT_THAT(odd.status().message(), HasSubstr("UCX_TCP_PORT_RANGE=9-1"));
  });
}

INSTANTIATE_TEST_SUITE_P(Ucx, UcxConnect, ::testing::ValuesIn(kRows),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace regroup::collective::testing::ucx_connect
