// Memory of a small parameter server, and processes that serve it.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collective/ps/client.h"
#include "collective/ps/handover.h"
#include "collective/ps/server.h"

namespace regroup::collective::ps::testing {

inline base::TimePoint in(std::chrono::nanoseconds time) { return shmem::RealPolicy::now() + time; }
constexpr std::chrono::seconds kLong{60};

// A child process that ends with what `body` returns; killed at the end of its scope.
class Child {
 public:
  explicit Child(const std::function<int()>& body) : pid_(::fork()) {
    EXPECT_GE(pid_, 0);
    if (pid_ == 0) ::_exit(body());
  }
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}
  Child& operator=(Child&& other) noexcept {
    std::swap(pid_, other.pid_);
    return *this;
  }
  ~Child() {
    if (pid_ > 0) static_cast<void>(end(SIGKILL));
  }
  [[nodiscard]] pid_t pid() const { return pid_; }
  void signal(int signal) const { ::kill(pid_, signal); }
  // Sends SIGSTOP; returns once the process stands.
  void stop() const {
    signal(SIGSTOP);
    int status = 0;
    while (::waitpid(pid_, &status, WUNTRACED) < 0 && errno == EINTR) {
    }
    EXPECT_TRUE(WIFSTOPPED(status));
  }
  // Sends a signal, if it is not 0; returns the status once the process has ended.
  int end(int signal = 0) {
    if (signal != 0) ::kill(pid_, signal);
    int status = 0;
    ::waitpid(std::exchange(pid_, 0), &status, 0);
    return status;
  }
  bool has_ended(int& status) {
    if (::waitpid(pid_, &status, WNOHANG) != pid_) return false;
    pid_ = 0;
    return true;
  }

 private:
  pid_t pid_;
};

struct Served {
  explicit Served(ServerMemorySpec spec = small()) {
    auto made = make_server_memory(spec);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    memory = std::move(*made);
  }
  static ServerMemorySpec small() { return small(2); }
  static ServerMemorySpec small(std::uint32_t shards) {
    return {.job_seed = 7,
            .shards = shards,
            .segments = 4,
            .segment_bytes = 2 << 20,
            .ring_bytes = 256 << 10,
            .lanes = 8,
            .lane_bytes = 64 << 10};
  }
  // What the process of server `number` executes; ends with 0 by SIGTERM only.
  [[nodiscard]] int serve(std::uint32_t number = 0) const {
    sigset_t term;
    ::sigemptyset(&term);
    ::sigaddset(&term, SIGTERM);
    ::pthread_sigmask(SIG_BLOCK, &term, nullptr);
    auto server = Server::start(memory.get(), kLong, number);
    if (!server.ok()) return 1;
    std::thread([&] {
      int signal = 0;
      ::sigwait(&term, &signal);
      (*server)->stop();
    }).detach();
    const base::Status status = (*server)->wait();
    if (!status.ok()) ::dprintf(2, "server: %s\n", status.to_string().c_str());
    return status.ok() ? 0 : 1;
  }
  [[nodiscard]] Child server(std::uint32_t number = 0) const {
    return Child([this, number] { return serve(number); });
  }
  // Gives shard i to server server_of[i].
  void assign(const std::vector<std::uint32_t>& server_of) const {
    std::vector<MappedShard> shards;
    for (std::size_t i = 0; i < server_of.size(); ++i) shards.push_back(map(i));
    assign_shards(shards, server_of);
  }
  // Waits until process `server` serves shard `shard`.
  void await_server(std::size_t shard, pid_t server) const {
    const MappedShard mapped = map(shard);
    for (const base::TimePoint end = in(kLong);
         mapped.lanes.header().process.load() != static_cast<std::uint64_t>(server);) {
      ASSERT_LT(in(std::chrono::seconds(0)), end) << "shard " << shard << " is not served";
      ::usleep(200);
    }
  }
  [[nodiscard]] base::Result<std::unique_ptr<Client>> attach(
      std::uint64_t number, std::chrono::nanoseconds deadline = kLong) const {
    return Client::attach(
        {.memory = to_text(memory.get()), .client = number, .deadline = deadline});
  }
  [[nodiscard]] std::unique_ptr<Client> client(std::uint64_t number,
                                               std::chrono::nanoseconds deadline = kLong) const {
    auto client = attach(number, deadline);
    EXPECT_TRUE(client.ok()) << client.status().to_string();
    return client.ok() ? std::move(*client) : nullptr;
  }
  [[nodiscard]] MappedShard map(std::size_t shard) const {
    auto mapped = MappedShard::open(memory.get().shards[shard], StoreMemory::Mode::kWrite);
    EXPECT_TRUE(mapped.ok()) << mapped.status().to_string();
    return std::move(*mapped);
  }

  OwnedServerMemory memory;
};

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}
template <class T>
std::vector<T> pull(const Client& client, Table table, const std::vector<std::int64_t>& ids,
                    std::size_t dim) {
  std::vector<T> rows(ids.size() * dim);
  const base::Status status = client.pull(table, ids, std::as_writable_bytes(std::span(rows)));
  EXPECT_TRUE(status.ok()) << status.to_string();
  return rows;
}
template <class T>
std::vector<T> pull(const Client& client, Table table) {
  std::vector<T> values(client.spec_of(table).rows);
  const base::Status status = client.pull(table, std::as_writable_bytes(std::span(values)));
  EXPECT_TRUE(status.ok()) << status.to_string();
  return values;
}
inline Table open(Client& client, const TableSpec& spec) {
  const auto table = client.open(spec);
  EXPECT_TRUE(table.ok()) << table.status().to_string();
  return table.ok() ? *table : Table{};
}

}  // namespace regroup::collective::ps::testing
