// A gateway whose servers or clients are killed, or that ends; and clients of all modes, some of
// them on its host. Servers are processes; the gateway is in this one.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <string>
#include <thread>

#include "tests/collective/ps/reached.h"

namespace regroup::collective::ps::testing::gateways {
namespace {

using base::Code;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

TEST(PsGateway, PushesThatFailUnaskedEndTheConnection) {
  Reached reached;
  const Child server = reached.served.server();
  reached.open_gateway();
  const auto client = reached.client();
  ASSERT_TRUE(client);
  const Table table = open(*client, counts_of(4096));
  base::Status status;
  for (std::int64_t id = 0; status.ok() && id < 20'000; ++id)
    status = client->push(table, std::vector<std::int64_t>{id}, bytes_of(ones_of(4096))).status();
  EXPECT_EQ(status.code(), Code::kPeerLost);
  EXPECT_EQ(client->flush().code(), Code::kPeerLost);
}

// A client may get an answer too late: the gateway keeps errors until the client has said that it
// has them.
TEST(PsGateway, ErrorsStayUntilTheClientHasThem) {
  Reached reached;
  const Child server = reached.served.server();
  reached.open_gateway();
  const auto socket = connect_link("127.0.0.1", reached.address.port, in(kLong));
  ASSERT_TRUE(socket.ok()) << socket.status().to_string();
  const auto write = [&](const void* from, std::size_t size) {
    for (const auto* at = static_cast<const char*>(from); size != 0;) {
      pollfd ready{.fd = socket->get(), .events = POLLOUT, .revents = 0};
      ASSERT_EQ(::poll(&ready, 1, 60'000), 1);
      const ssize_t sent = ::send(socket->get(), at, size, MSG_NOSIGNAL);
      ASSERT_GT(sent, 0);
      at += sent;
      size -= static_cast<std::size_t>(sent);
    }
  };
  const auto read = [&](void* to, std::size_t size) {
    for (auto* at = static_cast<char*>(to); size != 0;) {
      pollfd ready{.fd = socket->get(), .events = POLLIN, .revents = 0};
      ASSERT_EQ(::poll(&ready, 1, 60'000), 1);
      const ssize_t came = ::recv(socket->get(), at, size, 0);
      ASSERT_GT(came, 0);
      at += came;
      size -= static_cast<std::size_t>(came);
    }
  };
  const auto receive = [&] {
    Answer answer;
    read(&answer, sizeof answer);
    std::string rest(answer.text + answer.bytes, '\0');
    read(rest.data(), rest.size());
    return answer;
  };
  std::uint64_t number = 0;
  const auto request = [&](Request head, std::span<const std::byte> payload = {}) {
    head.number = ++number;
    head.bytes = payload.size();
    write(&head, sizeof head);
    write(payload.data(), payload.size());
  };
  const auto flush = [&] {
    request({.kind = RequestKind::kFlush});
    return receive();
  };
  Hello hello;
  hello.token = reached.address.token;
  hello.deadline = std::chrono::nanoseconds(kLong).count();
  write(&hello, sizeof hello);
  receive();
  const OpenContent content = content_of(counts_of(4096));
  request({.kind = RequestKind::kOpen}, std::as_bytes(std::span(&content, 1)));
  ASSERT_EQ(receive().code, 0U);
  const auto push = [&](std::int64_t id) {
    std::vector<std::int64_t> values(1 + 4096, 1);
    values[0] = id;
    request({.kind = RequestKind::kPush, .count = 1}, bytes_of(values));
  };
  Answer answer;
  for (std::int64_t id = 0; answer.last_failed == 0; ++id) {
    ASSERT_LT(id, 10'000);
    push(id);
    answer = flush();
    EXPECT_EQ(answer.settled, answer.last_failed == 0 ? number - 1 : number - 2);
  }
  EXPECT_EQ(answer.first_failed, number - 1);
  EXPECT_EQ(answer.last_failed, number - 1);
  const std::uint64_t failed = answer.last_failed;
  EXPECT_EQ(flush().last_failed, failed);
  request({.kind = RequestKind::kWait, .of = failed});
  EXPECT_EQ(receive().last_failed, failed);
  request({.kind = RequestKind::kTold, .count = failed, .of = failed});
  const Answer told = flush();
  EXPECT_EQ(told.code, 0U);
  EXPECT_EQ(told.settled, number - 1);
}

// Servers that are killed at random moments lose no push and apply none twice.
TEST(PsGateway, CountsAreExactWhateverServersAreKilled) {
  Reached reached;
  // Servers come from a process without threads, and end with it.
  const Child keeper([&] {
    const pid_t own = ::getpid();
    for (int i = 0;; ++i) {
      const Child server([&] {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != own) return 1;  // it was killed before that
        return reached.served.serve();
      });
      ::usleep(static_cast<useconds_t>(10'000 + i % 7 * 5'000));
    }
    return 0;
  });
  reached.open_gateway();
  const auto first = reached.client(), second = reached.client();
  ASSERT_TRUE(first && second);
  const std::vector<std::int64_t> ids = up_to(50);
  constexpr int kPushes = 300;
  const auto run = [&](Client& client) {
    const Table table = open(client, counts_of());
    for (int i = 0; i < kPushes; ++i) {
      const auto ticket = client.push(table, ids, bytes_of(ones_of(200)));
      ASSERT_TRUE(ticket.ok()) << ticket.status().to_string();
      if (i % 20 != 0) continue;
      const base::Status status = client.wait(*ticket, kLong);
      ASSERT_TRUE(status.ok()) << status.to_string();
      EXPECT_GE(pull<std::int64_t>(client, table, {7}, 4)[0], i + 1) << "its own pushes lack";
    }
    const base::Status status = client.flush();
    ASSERT_TRUE(status.ok()) << status.to_string();
  };
  std::thread other([&] { run(*second); });
  run(*first);
  other.join();
  const Table table = open(*first, counts_of());
  EXPECT_EQ(pull<std::int64_t>(*first, table, ids, 4), std::vector<std::int64_t>(200, 2 * kPushes));
}

// A client that is destroyed has sent all; a killed one is forgotten, and its lane is free again.
TEST(PsGateway, EndedClientsLeaveTheirPushesAndNoLane) {
  Reached reached;
  const Child server = reached.served.server();
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const auto push_some = [&](Client& client) {
    const Table table = open(client, counts_of());
    for (int i = 0; i < 40; ++i)
      static_cast<void>(client.push(table, up_to(50), bytes_of(ones_of(200))));
  };
  Child killed([&] {
    auto client = reached.attach();
    if (!client.ok()) return 1;
    push_some(**client);
    if (!(*client)->flush().ok() || ::write(ready[1], "x", 1) != 1) return 2;
    ::pause();
    return 0;
  });
  reached.open_gateway();
  char word = 0;
  ASSERT_EQ(::read(ready[0], &word, 1), 1);
  killed.end(SIGKILL);
  reached.await_no_client();
  push_some(*reached.client());
  reached.await_no_client();
  const auto client = reached.client();
  EXPECT_EQ(pull<std::int64_t>(*client, open(*client, counts_of()), {49}, 4),
            std::vector<std::int64_t>(4, 80));
  for (const int end : ready) ::close(end);
}

TEST(PsGateway, AGatewayThatEndsIsNamed) {
  Reached reached;
  const Child server = reached.served.server();
  reached.open_gateway();
  const auto client = reached.client();
  ASSERT_TRUE(client);
  const Table table = open(*client, counts_of());
  reached.gateway.reset();
  std::vector<std::byte> row(32);
  const base::Status lost = client->pull(table, up_to(1), row);
  EXPECT_EQ(lost.code(), Code::kPeerLost);
  EXPECT_NE(lost.message().find("the parameter server on host node1 (127.0.0.1 port"),
            std::string::npos)
      << lost.message();
  EXPECT_EQ(client->flush().message(), lost.message());
}

// A gateway ends while clients wait for a server that stands.
TEST(PsGateway, AGatewayEndsWhileCallsWait) {
  Reached reached;
  Child server = reached.served.server();
  reached.open_gateway();
  const auto client = reached.client();
  ASSERT_TRUE(client);
  const Table table = open(*client, counts_of());
  server.stop();
  std::thread waiting([&] {
    static_cast<void>(client->push(table, up_to(1), bytes_of(ones_of(4))));
    EXPECT_EQ(client->flush().code(), Code::kPeerLost);
  });
  std::this_thread::sleep_for(20ms);  // as a rule the flush has begun
  const base::TimePoint end = in(kLong);
  reached.gateway.reset();
  EXPECT_LT(in(0s), end);
  waiting.join();
}

// What a connection without the token sends, or a client that has the token and sends nonsense,
// ends its own connection.
TEST(PsGateway, StrangersGetNoAnswerAndHoldUpNobody) {
  Reached reached;
  const Child server = reached.served.server();
  reached.open_gateway();
  const auto connect = [&] {
    auto socket = connect_link("127.0.0.1", reached.address.port, in(kLong));
    EXPECT_TRUE(socket.ok()) << socket.status().to_string();
    return std::move(*socket);
  };
  const auto send = [](const base::Fd& socket, const auto& value) {
    EXPECT_EQ(::send(socket.get(), &value, sizeof value, MSG_NOSIGNAL),
              static_cast<ssize_t>(sizeof value));
  };
  // The bytes that come until the connection is closed.
  const auto closed_after = [](const base::Fd& socket) {
    std::size_t bytes = 0;
    for (const base::TimePoint end = in(kLong); in(0s) < end;) {
      pollfd ready{.fd = socket.get(), .events = POLLIN, .revents = 0};
      static_cast<void>(::poll(&ready, 1, 100));
      std::array<char, 256> some;
      const ssize_t count = ::recv(socket.get(), some.data(), some.size(), MSG_DONTWAIT);
      if (count == 0 || (count < 0 && errno != EAGAIN)) return bytes;
      if (count > 0) bytes += static_cast<std::size_t>(count);
    }
    ADD_FAILURE() << "the connection stays open";
    return bytes;
  };
  std::vector<base::Fd> silent;
  for (std::size_t i = 0; i < 2 * Gateway::kMostStrangers; ++i) silent.push_back(connect());
  EXPECT_EQ(closed_after(silent.front()), 0U);  // the oldest, for a newer one
  Hello hello;
  const base::Fd wrong = connect();
  send(wrong, hello);
  EXPECT_EQ(closed_after(wrong), 0U);
  hello.token = reached.address.token;
  for (const Request& request :
       {Request{.kind = static_cast<RequestKind>(99), .number = 1},
        Request{.kind = RequestKind::kFlush, .number = 0},
        Request{.kind = RequestKind::kFlush, .number = 1, .bytes = 1ULL << 60},
        Request{.kind = RequestKind::kPush, .table = 5, .number = 1},
        Request{.kind = RequestKind::kPull, .table = 0, .number = 1, .count = 1, .bytes = 8},
        Request{.kind = RequestKind::kTold, .number = 1, .count = 1, .of = 2},
        Request{.kind = RequestKind::kOpen, .number = 1, .bytes = 8}}) {
    const base::Fd known = connect();
    send(known, hello);
    send(known, request);
    EXPECT_EQ(closed_after(known), sizeof(Answer) + sizeof(Welcome))
        << static_cast<std::uint32_t>(request.kind);
  }
  hello.version = 77;
  const base::Fd old = connect();
  send(old, hello);
  EXPECT_GT(closed_after(old), sizeof(Answer));  // it is told why
  const auto client = reached.client();
  ASSERT_TRUE(client);
  static_cast<void>(open(*client, counts_of()));
}

// Mode ssp: a pull waits for a client of the servers' host, and names one of another host.
TEST(PsGateway, ClocksHoldAcrossHosts) {
  Reached reached;
  const Child server = reached.served.server();
  reached.open_gateway();
  const Consistency ssp{.mode = Mode::kSsp, .staleness = 0};
  auto here = Client::attach({.memory = to_text(reached.served.memory.get()),
                              .client = 1,
                              .deadline = 300ms,
                              .consistency = ssp,
                              .name = "worker 0"});
  ASSERT_TRUE(here.ok()) << here.status().to_string();
  EXPECT_EQ(reached.attach(kLong, {}, "worker 1").code(), Code::kInvalidArgument) << "mode async";
  auto there = reached.attach(300ms, ssp, "worker 1");
  ASSERT_TRUE(there.ok()) << there.status().to_string();
  const Table mine = open(**here, counts_of()), theirs = open(**there, counts_of());
  std::vector<std::byte> row(32);
  ASSERT_EQ((*there)->advance().value(), 1U);
  EXPECT_EQ((*there)->clock(), 1U);
  const base::Status waits = (*there)->pull(theirs, up_to(1), row);
  EXPECT_EQ(waits.code(), Code::kDeadlineExceeded);
  EXPECT_NE(waits.message().find("worker 0 (process"), std::string::npos) << waits.message();
  ASSERT_TRUE((*here)->push(mine, up_to(1), bytes_of(ones_of(4))).ok());
  ASSERT_EQ((*here)->advance().value(), 1U);
  EXPECT_EQ(pull<std::int64_t>(**there, theirs, {0}, 4), ones_of(4));
  ASSERT_EQ((*here)->advance().value(), 2U);
  const base::Status named = (*here)->pull(mine, up_to(1), row);
  EXPECT_NE(named.message().find(fmt::format("worker 1 (process {} on host ", ::getpid())),
            std::string::npos)
      << named.message();
  there->reset();  // holds up nobody any more
  EXPECT_TRUE((*here)->pull(mine, up_to(1), row).ok());
}

// Mode sync: each step has every leaf once, whichever host computes it.
TEST(PsGateway, LeavesOfAStepComeFromAllHosts) {
  Reached reached;
  const Child server = reached.served.server();
  reached.open_gateway();
  constexpr std::int64_t kLeaves = 8, kSteps = 5;
  const Consistency sync{.mode = Mode::kSync, .staleness = {}, .leaves = kLeaves};
  auto here = Client::attach({.memory = to_text(reached.served.memory.get()),
                              .client = 1,
                              .deadline = kLong,
                              .consistency = sync});
  auto there = reached.attach(kLong, sync);
  ASSERT_TRUE(here.ok() && there.ok()) << there.status().to_string();
  std::atomic<int> leaves_there = 0;
  const auto train = [&](Client& client, bool counts_leaves) {
    const Table table = open(client, counts_of(1));
    EXPECT_EQ(client.push(table, up_to(1), bytes_of(ones_of(1))).code(), Code::kInvalidArgument);
    EXPECT_EQ(client.advance().code(), Code::kInvalidArgument);
    while (client.clock() < kSteps) {
      const auto leaf = client.next_leaf();
      ASSERT_TRUE(leaf.ok()) << leaf.status().to_string();
      if (!*leaf) continue;
      EXPECT_EQ((*leaf)->step, client.clock());
      const std::int64_t sum = pull<std::int64_t>(client, table, {0}, 1)[0];
      // Of a leaf that others have helped with, later steps may be there.
      EXPECT_GE(sum, static_cast<std::int64_t>((*leaf)->step) * kLeaves * (kLeaves + 1) / 2);
      const std::vector<std::int64_t> gradient{(*leaf)->number + 1};
      const auto pushed = client.push(table, up_to(1), bytes_of(gradient));
      ASSERT_TRUE(pushed.ok()) << pushed.status().to_string();
      if (counts_leaves) ++leaves_there;
      std::this_thread::sleep_for(1ms);  // so that both get leaves
    }
    EXPECT_EQ(pull<std::int64_t>(client, table, {0}, 1)[0], kSteps * kLeaves * (kLeaves + 1) / 2);
  };
  std::thread other([&] { train(**here, false); });
  train(**there, true);
  other.join();
  EXPECT_GT(leaves_there, 0);
}

// The connection is full since the server stands: a push, and then the end of the leaf, reach their
// deadlines half sent. The leaf begins again, so that what is pushed then counts once.
TEST(PsGateway, ALeafWithAPushThatWasNotSentWholeBeginsAgain) {
  for (const bool ends_leaf_in_vain : {false, true}) {
    Reached reached;
    const Child server = reached.served.server();
    reached.open_gateway();
    const auto attached = reached.attach(1s, {.mode = Mode::kSync, .staleness = {}, .leaves = 1});
    ASSERT_TRUE(attached.ok()) << attached.status().to_string();
    Client& client = **attached;
    const Table table = open(client, counts_of(64));
    const std::vector<std::int64_t> ids = up_to(64);
    const auto push = [&] { return client.push(table, ids, bytes_of(ones_of(64 * 64))); };
    ASSERT_EQ(*client.next_leaf(), (Leaf{0, 0}));
    server.stop();
    base::Status status;
    for (int begun = 0; status.ok() && begun < 100'000; ++begun) status = push().status();
    ASSERT_EQ(status.code(), Code::kDeadlineExceeded) << status.to_string();
    if (ends_leaf_in_vain) {
      EXPECT_EQ(client.next_leaf().code(), Code::kDeadlineExceeded);
    }
    server.signal(SIGCONT);
    base::Result<std::optional<Leaf>> leaf = std::optional<Leaf>();
    for (const base::TimePoint end = in(kLong); in(0s) < end;) {
      leaf = client.next_leaf();
      if (leaf.code() != Code::kDeadlineExceeded) break;
    }
    ASSERT_TRUE(leaf.ok()) << leaf.status().to_string();
    ASSERT_EQ(*leaf, (Leaf{0, 0})) << "the step has no leaf that counts";
    ASSERT_TRUE(push().ok());
    ASSERT_EQ(*client.next_leaf(), std::nullopt);
    EXPECT_EQ(pull<std::int64_t>(client, table, {5}, 64), ones_of(64));
  }
}

}  // namespace
}  // namespace regroup::collective::ps::testing::gateways
