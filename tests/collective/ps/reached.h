// A served host that clients of another host reach: by a gateway in this process, over TCP.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collective/ps/gateway.h"
#include "collective/ps/link.h"
#include "tests/collective/ps/served.h"

namespace regroup::collective::ps::testing {

// A listening socket of this host.
inline base::Fd listen_here(std::uint16_t& port, int backlog = 128) {
  base::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(::listen(socket.get(), backlog), 0);
  EXPECT_EQ(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  port = ntohs(address.sin_port);
  return socket;
}

// A served host with a gateway, and clients that reach it by TCP.
struct Reached {
  explicit Reached(ServerMemorySpec spec = Served::small()) : served(spec) {
    address.host = "node1";
    address.address = "127.0.0.1";
    address.token.fill(std::byte{0xa5});
    listener = listen_here(address.port);
  }
  // After all processes are forked: they must not have its threads' locks.
  void open_gateway() {
    GatewayOptions options{.memory = served.memory.get(),
                           .listener = std::move(listener),
                           .token = address.token,
                           .next_client = [this] { return ++clients; }};
    auto made = Gateway::start(std::move(options));
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    gateway = std::move(*made);
  }
  [[nodiscard]] base::Result<std::unique_ptr<Client>> attach(
      std::chrono::nanoseconds deadline = kLong, const Consistency& consistency = {},
      const std::string& name = {}) const {
    return Client::attach({.memory = to_text(address),
                           .client = 0,
                           .deadline = deadline,
                           .consistency = consistency,
                           .name = name});
  }
  [[nodiscard]] std::unique_ptr<Client> client(std::chrono::nanoseconds deadline = kLong) const {
    auto client = attach(deadline);
    EXPECT_TRUE(client.ok()) << client.status().to_string();
    return client.ok() ? std::move(*client) : nullptr;
  }
  // Waits until all lanes are free: no client is attached any more.
  void await_no_client() const {
    const MappedShard shard = served.map(0);
    const auto taken = [&] {
      for (std::uint32_t i = 0; i < shard.lanes.spec().lanes; ++i) {
        if (shard.lanes.lane(i).client.load() != 0) return true;
      }
      return false;
    };
    for (const base::TimePoint end = in(kLong); taken();
         std::this_thread::sleep_for(std::chrono::milliseconds(1)))
      ASSERT_LT(in(std::chrono::seconds(0)), end) << "a lane stays taken";
  }

  Served served;
  GatewayAddress address;
  base::Fd listener;
  std::atomic<std::uint64_t> clients = 100;
  std::unique_ptr<Gateway> gateway;
};

inline TableSpec counts_of(std::uint32_t dim = 4) {
  return {.name = "counts", .kind = TableKind::kHash, .dim = dim, .dtype = Dtype::kInt64};
}
inline std::vector<std::int64_t> ones_of(std::size_t count) {
  return std::vector<std::int64_t>(count, 1);
}
inline std::vector<std::int64_t> up_to(std::size_t count) {
  std::vector<std::int64_t> out(count);
  std::iota(out.begin(), out.end(), 0);
  return out;
}

}  // namespace regroup::collective::ps::testing
