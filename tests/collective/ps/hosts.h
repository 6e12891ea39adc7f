// Hosts with a store each. Their servers and gateways are processes, so that a host can be lost.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/collective/ps/reached.h"

namespace regroup::collective::ps::testing {

class Hosts {
 public:
  // Host i has shards[i] shards.
  explicit Hosts(const std::vector<std::uint32_t>& shards) {
    for (const std::uint32_t count : shards) add(Served::small(count));
    begin();
  }
  Hosts(std::size_t count, const ServerMemorySpec& each) {
    for (std::size_t i = 0; i < count; ++i) add(each);
    begin();
  }
  [[nodiscard]] std::size_t count() const { return hosts_.size(); }
  [[nodiscard]] const Served& served(std::size_t host) const { return hosts_[host]->served; }
  [[nodiscard]] Child& server(std::size_t host) { return servers_[host]; }
  [[nodiscard]] Child& gateway(std::size_t host) { return gateways_[host]; }
  // Somebody has connected to this host, whose gateway is lost.
  [[nodiscard]] bool is_called(std::size_t host) const {
    pollfd ready{.fd = hosts_[host]->listener.get(), .events = POLLIN, .revents = 0};
    return ::poll(&ready, 1, 0) > 0;
  }
  void kill_server(std::size_t host) {
    servers_[host].end(SIGKILL);
    servers_[host] = hosts_[host]->served.server();
  }
  // Nobody answers at this host any more. Others still have its listening socket: who connects is
  // not refused, as by a host that has vanished.
  void lose(std::size_t host) {
    gateways_[host].end(SIGKILL);
    servers_[host].end(SIGKILL);
  }
  // What the agents of all other hosts do once the launcher says that this one is lost.
  void note_lost(std::size_t host) {
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      if (i == host) continue;
      std::vector<MappedShard> shards;
      shards.push_back(hosts_[i]->served.map(0));
      note_lost_stores(shards, std::uint64_t{1} << host);
    }
  }
  void await_no_client() const {
    for (const auto& host : hosts_) host->await_no_client();
  }
  [[nodiscard]] StepWords& words(std::size_t host) {
    mapped_.push_back(hosts_[host]->served.map(0));
    return mapped_.back().lanes.header().steps;
  }
  // Client `number` is on host `number` % (count() + 1), the last of which has no store.
  [[nodiscard]] std::vector<ClientOptions> list(std::uint64_t number,
                                                const Consistency& consistency = {},
                                                std::chrono::nanoseconds deadline = kLong) const {
    std::vector<ClientOptions> out;
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      const bool here = number % (hosts_.size() + 1) == i;
      out.push_back(
          {.memory = here ? to_text(hosts_[i]->served.memory.get()) : to_text(hosts_[i]->address),
           .client = number,
           .deadline = deadline,
           .consistency = consistency,
           .name = fmt::format("worker {}", number)});
    }
    return out;
  }
  [[nodiscard]] std::unique_ptr<Client> client(std::uint64_t number,
                                               const Consistency& consistency = {},
                                               std::uint32_t replicas = 1) const {
    auto made = Client::attach(list(number, consistency), replicas);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return made.ok() ? std::move(*made) : nullptr;
  }

 private:
  void add(const ServerMemorySpec& spec) {
    hosts_.push_back(std::make_unique<Reached>(spec));
    hosts_.back()->address.host = fmt::format("node{}", hosts_.size() - 1);
  }
  void begin() {
    for (const auto& host : hosts_) servers_.push_back(host->served.server());
    for (const auto& host : hosts_) {
      gateways_.push_back(Child([&host] {
        host->open_gateway();
        while (true) ::pause();
        return 0;
      }));
    }
  }

  std::vector<std::unique_ptr<Reached>> hosts_;
  std::vector<Child> servers_;
  std::vector<Child> gateways_;
  std::vector<MappedShard> mapped_;
};

}  // namespace regroup::collective::ps::testing
