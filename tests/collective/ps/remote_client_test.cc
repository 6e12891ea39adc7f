// Calls of clients of another host, over a gateway: the same tables, the same refusals, deadlines.
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <poll.h>

#include <array>
#include <cstring>
#include <numeric>
#include <thread>

#include "collective/ps/backend.h"
#include "tests/collective/ps/reached.h"

namespace regroup::collective::ps::testing::remote_clients {
namespace {

using base::Code;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

// Between one client and a gateway: may hold up what the gateway sends.
class Relay {
 public:
  explicit Relay(const GatewayAddress& gateway) : address_(gateway) {
    listener_ = listen_here(address_.port);
    thread_ = std::thread([this, port = gateway.port] { run(port); });
  }
  ~Relay() {
    ending_ = true;
    thread_.join();
  }
  [[nodiscard]] const GatewayAddress& address() const { return address_; }
  void hold_answers(bool hold) { holds_ = hold; }
  [[nodiscard]] std::size_t bytes_to_gateway() const { return bytes_; }

 private:
  void run(std::uint16_t port) {
    const base::Fd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const auto gateway = connect_link("127.0.0.1", port, in(kLong));
    ASSERT_TRUE(gateway.ok()) << gateway.status().to_string();
    while (!ending_) {
      std::array<pollfd, 2> ready{
          pollfd{.fd = client.get(), .events = POLLIN, .revents = 0},
          pollfd{.fd = holds_ ? -1 : gateway->get(), .events = POLLIN, .revents = 0}};
      static_cast<void>(::poll(ready.data(), ready.size(), 1));
      if (ready[0].revents != 0) bytes_ += copy(client.get(), gateway->get());
      if (ready[1].revents != 0) static_cast<void>(copy(gateway->get(), client.get()));
    }
  }
  static std::size_t copy(int from, int to) {
    std::array<std::byte, 64 << 10> some;
    const ssize_t count = ::recv(from, some.data(), some.size(), MSG_DONTWAIT);
    for (ssize_t sent = 0; sent < count;) {
      const ssize_t now =
          ::send(to, some.data() + sent, static_cast<std::size_t>(count - sent), MSG_NOSIGNAL);
      if (now < 0 && errno != EAGAIN) return 0;
      sent += std::max<ssize_t>(now, 0);
    }
    return count > 0 ? static_cast<std::size_t>(count) : 0;
  }

  GatewayAddress address_;
  base::Fd listener_;
  std::atomic<bool> ending_ = false;
  std::atomic<bool> holds_ = false;
  std::atomic<std::size_t> bytes_ = 0;
  std::thread thread_;
};

TEST(PsRemote, PushesAndPullsTheSameTables) {
  Reached reached;
  const Child server = reached.served.server();
  reached.open_gateway();
  const auto here = reached.served.client(1);
  const auto there = reached.client();
  ASSERT_TRUE(here && there);
  const Table mine = open(*here, counts_of()), theirs = open(*there, counts_of());
  EXPECT_EQ(there->spec_of(theirs), counts_of());
  const std::vector<std::int64_t> ids{5, -3, 1LL << 60};
  ASSERT_TRUE(here->push(mine, ids, bytes_of(ones_of(12))).ok());
  ASSERT_TRUE(here->flush().ok());
  const auto ticket = there->push(theirs, ids, bytes_of(ones_of(12)));
  ASSERT_TRUE(ticket.ok()) << ticket.status().to_string();
  const base::Status waited = there->wait(*ticket, kLong);
  ASSERT_TRUE(waited.ok()) << waited.to_string();
  EXPECT_EQ(pull<std::int64_t>(*here, mine, {-3}, 4), (std::vector<std::int64_t>(4, 2)));
  EXPECT_EQ(pull<std::int64_t>(*there, theirs, {-3, 7, 5}, 4),
            (std::vector<std::int64_t>{2, 2, 2, 2, 0, 0, 0, 0, 2, 2, 2, 2}));
}

// More rows than a request has, and a tensor of several slices.
TEST(PsRemote, LargePushesAndPullsAreCut) {
  ServerMemorySpec spec = Served::small();
  spec.ring_bytes = 16 << 20;
  spec.segment_bytes = 48 << 20;
  spec.lane_bytes = 8 << 20;
  Reached reached(spec);
  const Child server = reached.served.server();
  reached.open_gateway();
  const auto client = reached.client();
  ASSERT_TRUE(client);
  constexpr std::size_t kDim = 512, kRows = 2 * kMostRowBytes / (kDim * 8) + 17;
  const Table rows = open(*client, counts_of(kDim));
  const std::vector<std::int64_t> ids = up_to(kRows);
  std::vector<std::int64_t> gradients(kRows * kDim);
  std::iota(gradients.begin(), gradients.end(), 0);
  const auto ticket = client->push(rows, ids, bytes_of(gradients));
  ASSERT_TRUE(ticket.ok()) << ticket.status().to_string();
  const base::Status waited = client->wait(*ticket, kLong);
  ASSERT_TRUE(waited.ok()) << waited.to_string();
  EXPECT_TRUE(pull<std::int64_t>(*client, rows, ids, kDim) == gradients);

  constexpr std::size_t kElements = (9 << 20) / sizeof(float) + 3;
  const Table dense = open(
      *client, {.name = "dense", .rows = kElements, .optimizer = {.kind = OptimizerKind::kSgd}});
  std::vector<float> slopes(kElements);
  std::iota(slopes.begin(), slopes.end(), 0.0F);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(client->push(dense, bytes_of(slopes), {.lr = 1}).ok());
  const base::Status flushed = client->flush();
  ASSERT_TRUE(flushed.ok()) << flushed.to_string();
  const auto values = pull<float>(*client, dense);
  for (std::size_t i = 0; i < kElements; ++i) ASSERT_EQ(values[i], -3 * slopes[i]) << i;
}

TEST(PsRemote, WrongCallsAreRefusedInTheSameWordsAndChangeNothing) {
  Reached reached;
  const Child server = reached.served.server();
  reached.open_gateway();
  const auto here = reached.served.client(1);
  const auto there = reached.client();
  ASSERT_TRUE(here && there);
  const TableSpec dense{.name = "dense", .rows = 3};
  const TableSpec direct{.name = "direct", .kind = TableKind::kDirect, .rows = 8};
  std::vector<std::vector<std::string>> told;
  for (Client* const client : {here.get(), there.get()}) {
    std::vector<std::string>& said = told.emplace_back();
    const auto note = [&](const base::Status& status) {
      EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
      said.push_back(status.message());
    };
    const Table rows = open(*client, counts_of()), tensor = open(*client, dense);
    const Table few = open(*client, direct);
    TableSpec other = counts_of();
    other.dim = 8;
    note(client->open(other).status());
    note(client->open({.name = "?"}).status());
    const std::vector<std::int64_t> twice{1, 1}, beyond{8};
    std::vector<std::byte> three(3), row(32);
    note(client->push(rows, twice, bytes_of(ones_of(8))).status());
    note(client->push(rows, beyond, bytes_of(ones_of(8))).status());
    note(client->push(rows, beyond, three).status());
    note(client->push(tensor, beyond, three).status());
    note(client->push(tensor, three).status());
    note(client->push(rows, three).status());
    note(client->push(Table{77}, three).status());
    note(client->push(few, beyond, bytes_of(std::vector<float>{1})).status());
    note(client->pull(rows, beyond, three));
    note(client->pull(few, beyond, std::span(row).first(4)));
    note(client->pull(tensor, three));
    EXPECT_TRUE(client->flush().ok());
    EXPECT_EQ(pull<std::int64_t>(*client, rows, {1, 8}, 4), (std::vector<std::int64_t>(8)));
  }
  EXPECT_EQ(told[0], told[1]);
  EXPECT_EQ(there->wait(Ticket{0}, kLong).code(), Code::kInvalidArgument);
  EXPECT_EQ(there->wait(Ticket{1000}, kLong).code(), Code::kInvalidArgument);
}

TEST(PsRemote, AFailedPushIsToldOnce) {
  Reached reached;
  const Child server = reached.served.server();
  reached.open_gateway();
  const auto client = reached.client();
  ASSERT_TRUE(client);
  const Table table = open(*client, counts_of(4096));
  // Until the store is full.
  base::Result<Ticket> ticket = Ticket{};
  base::Status waited;
  for (std::int64_t id = 0; waited.ok() && id < 10'000; ++id) {
    ticket = client->push(table, std::vector<std::int64_t>{id}, bytes_of(ones_of(4096)));
    ASSERT_TRUE(ticket.ok()) << ticket.status().to_string();
    waited = client->wait(*ticket, kLong);
  }
  EXPECT_EQ(waited.code(), Code::kResourceExhausted) << waited.to_string();
  EXPECT_TRUE(client->wait(*ticket, kLong).ok());
  for (std::int64_t id = 20'000; id < 20'064; ++id)
    ASSERT_TRUE(client->push(table, std::vector<std::int64_t>{id}, bytes_of(ones_of(4096))).ok());
  EXPECT_EQ(client->flush().code(), Code::kResourceExhausted);
  EXPECT_TRUE(client->flush().ok());
}

// An answer that comes after the deadline of its wait() belongs to that push: no other one has it.
TEST(PsRemote, ALateErrorIsThatOfItsOwnPush) {
  Reached reached;
  const Child server = reached.served.server();
  reached.open_gateway();
  Relay relay(reached.address);
  auto attached = Client::attach({.memory = to_text(relay.address()), .deadline = kLong});
  ASSERT_TRUE(attached.ok()) << attached.status().to_string();
  Client& client = **attached;
  const Table table = open(client, counts_of(4096));
  const auto push = [&](std::int64_t id) {
    const auto ticket = client.push(table, std::vector<std::int64_t>{id}, bytes_of(ones_of(4096)));
    EXPECT_TRUE(ticket.ok()) << ticket.status().to_string();
    return ticket.ok() ? *ticket : Ticket{};
  };
  std::int64_t beyond = 0;  // for which there is no room
  while (client.wait(push(beyond), kLong).ok()) ASSERT_LT(++beyond, 10'000);
  const Ticket refused = push(beyond), taken = push(0);
  relay.hold_answers(true);
  EXPECT_EQ(client.wait(refused, 10ms).code(), Code::kDeadlineExceeded);
  relay.hold_answers(false);
  const base::Status own = client.wait(taken, kLong);
  EXPECT_TRUE(own.ok()) << own.to_string();
  EXPECT_EQ(client.wait(refused, kLong).code(), Code::kResourceExhausted);
  EXPECT_TRUE(client.wait(refused, kLong).ok()) << "it is told once";
  EXPECT_TRUE(client.flush().ok());
}

TEST(PsRemote, WaitsForPushesThatAreKnownToBeAppliedSendNothing) {
  Reached reached;
  const Child server = reached.served.server();
  reached.open_gateway();
  Relay relay(reached.address);
  auto client = Client::attach({.memory = to_text(relay.address()), .deadline = kLong});
  ASSERT_TRUE(client.ok()) << client.status().to_string();
  const Table table = open(**client, counts_of());
  std::vector<Ticket> tickets;
  for (int i = 0; i < 20; ++i) {
    const auto ticket = (*client)->push(table, up_to(1), bytes_of(ones_of(4)));
    ASSERT_TRUE(ticket.ok()) << ticket.status().to_string();
    tickets.push_back(*ticket);
  }
  ASSERT_TRUE((*client)->flush().ok());
  const std::size_t before = relay.bytes_to_gateway();
  for (const Ticket& ticket : tickets) EXPECT_TRUE((*client)->wait(ticket, kLong).ok());
  ASSERT_TRUE((*client)->flush().ok());
  EXPECT_EQ(relay.bytes_to_gateway(), before + sizeof(Request)) << "of the flush() alone";
}

// Nobody answers: each call ends at its deadline, and what was pushed counts later.
TEST(PsRemote, WithoutAServerCallsEndAtTheirDeadlines) {
  Reached reached;
  const Child first = reached.served.server();
  first.stop();
  reached.open_gateway();
  const auto client = reached.client(300ms);
  ASSERT_TRUE(client);
  const auto late = client->open(counts_of());
  EXPECT_EQ(late.code(), Code::kDeadlineExceeded) << late.status().to_string();
  EXPECT_NE(late.status().message().find("shard 0"), std::string::npos)
      << late.status().to_string();
  first.signal(SIGCONT);
  const auto patient = reached.client();
  const Table table = open(*patient, counts_of());
  first.stop();
  const auto ticket = patient->push(table, up_to(50), bytes_of(ones_of(200)));
  ASSERT_TRUE(ticket.ok());
  EXPECT_EQ(patient->wait(*ticket, 10ms).code(), Code::kDeadlineExceeded);
  first.signal(SIGCONT);
  EXPECT_TRUE(patient->wait(*ticket, kLong).ok());
  EXPECT_EQ(pull<std::int64_t>(*patient, table, {0}, 4), ones_of(4));
}

// The lane is full since the server stands, so the connection is: push() gives up, and what it has
// sent is applied in the end, whole requests of it.
TEST(PsRemote, AFullConnectionIsADeadlineAndStaysUsable) {
  Reached reached;
  Child server = reached.served.server();
  reached.open_gateway();
  const auto client = reached.client(500ms);
  ASSERT_TRUE(client);
  const Table table = open(*client, counts_of(64));
  server.stop();
  std::int64_t begun = 0;
  base::Status status;
  const std::vector<std::int64_t> ids = up_to(64);
  for (; status.ok() && begun < 100'000; ++begun)
    status = client->push(table, ids, bytes_of(ones_of(64 * 64))).status();
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded) << status.to_string();
  server.signal(SIGCONT);
  base::Status flushed;
  for (const base::TimePoint end = in(kLong); in(0s) < end;) {
    flushed = client->flush();
    if (flushed.code() != Code::kDeadlineExceeded) break;
  }
  // The gateway waited for room for at most 500 ms: a push of that time may have failed. It is told
  // so, and not as a deadline, after which flush() would be called again.
  EXPECT_TRUE(flushed.ok() || flushed.code() == Code::kUnavailable) << flushed.to_string();
  EXPECT_TRUE(flushed.ok() || client->flush().ok());
  const std::int64_t before = pull<std::int64_t>(*client, table, {0}, 64)[0];
  EXPECT_LE(before, begun);
  ASSERT_TRUE(client->push(table, ids, bytes_of(ones_of(64 * 64))).ok());
  const base::Status again = client->flush();
  ASSERT_TRUE(again.ok()) << again.to_string();
  EXPECT_EQ(pull<std::int64_t>(*client, table, {0}, 64)[0], before + 1);
}

TEST(PsRemote, AGatewayThatSaysNothingIsADeadline) {
  GatewayAddress address{.host = "node1", .address = "127.0.0.1"};
  const base::Fd listener = listen_here(address.port);
  const auto late = Client::attach({.memory = to_text(address), .deadline = 50ms});
  EXPECT_EQ(late.code(), Code::kDeadlineExceeded) << late.status().to_string();
  EXPECT_NE(late.status().message().find("host node1"), std::string::npos);
}

TEST(PsRemote, AHostWhereNobodyListensIsNamed) {
  GatewayAddress address{.host = "node1", .address = "127.0.0.1"};
  listen_here(address.port).reset();
  const auto refused = Client::attach({.memory = to_text(address), .deadline = kLong});
  EXPECT_EQ(refused.code(), Code::kUnavailable);
  EXPECT_EQ(refused.status().message(),
            fmt::format("parameter server on host node1: connect(127.0.0.1 port {}): Connection "
                        "refused",
                        address.port));
}

// The agent says which stores are lost. A client of this host sees it at once, one of another host
// in each answer.
TEST(PsRemote, LearnsWhichStoresAreLost) {
  Reached reached;
  const Child server = reached.served.server();
  reached.open_gateway();
  const auto attach = [](const std::string& memory, std::uint64_t number) {
    auto made = Client::StoreBackend::attach(
        {.memory = memory, .client = number, .deadline = kLong}, in(kLong));
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return std::move(*made);
  };
  const auto here = attach(to_text(reached.served.memory.get()), 7);
  const auto there = attach(to_text(reached.address), 0);
  EXPECT_EQ(here->known_lost_stores(), 0U);
  EXPECT_EQ(there->ask_lost_stores(in(kLong)).value(), 0U);
  std::vector<MappedShard> shards;
  shards.push_back(reached.served.map(0));
  note_lost_stores(shards, 1ULL << 2);
  note_lost_stores(shards, 1ULL << 63);
  constexpr std::uint64_t kBoth = 1ULL << 63 | 1ULL << 2;
  EXPECT_EQ(here->known_lost_stores(), kBoth);
  EXPECT_EQ(there->known_lost_stores(), 0U);
  EXPECT_TRUE(there->flush(in(kLong)).ok());
  EXPECT_EQ(there->known_lost_stores(), kBoth);
  note_lost_stores(shards, 1);
  EXPECT_EQ(there->ask_lost_stores(in(kLong)).value(), kBoth | 1);
  EXPECT_EQ(attach(to_text(reached.address), 0)->known_lost_stores(), kBoth | 1);
  reached.gateway.reset();
  EXPECT_EQ(there->ask_lost_stores(in(kLong)).code(), Code::kPeerLost);
}

TEST(PsRemote, ThreadsOfAClientTakeTurns) {
  Reached reached;
  const Child server = reached.served.server();
  reached.open_gateway();
  const auto client = reached.client();
  ASSERT_TRUE(client);
  const Table table = open(*client, counts_of());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        EXPECT_TRUE(client->push(table, up_to(20), bytes_of(ones_of(80))).ok());
        if (i % 10 == 0) {
          EXPECT_TRUE(client->flush().ok());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(client->flush().ok());
  EXPECT_EQ(pull<std::int64_t>(*client, table, {19}, 4), std::vector<std::int64_t>(4, 200));
}

}  // namespace
}  // namespace regroup::collective::ps::testing::remote_clients
