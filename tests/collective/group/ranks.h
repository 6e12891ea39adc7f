// Ranks of a Group as threads and as processes, and the stores in which they meet.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collective/group/group.h"

namespace regroup::collective::group {

inline base::TimePoint in(base::Duration time) { return base::SystemClock().now() + time; }

// For ranks that are threads.
class MemoryStore final : public Store {
 public:
  base::Status set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
    return {};
  }
  base::Result<std::string> get(const std::string& key, base::TimePoint deadline) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_until(lock, deadline, [&] { return values_.contains(key); }))
      return base::deadline_exceeded("no key " + key);
    return values_.at(key);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

// For ranks that are processes: a pipe to each rank from each other would be too much, files do.
class FileStore final : public Store {
 public:
  explicit FileStore(std::string folder) : folder_(std::move(folder)) {}
  base::Status set(const std::string& key, const std::string& value) override {
    const std::string path = path_of(key);
    FILE* const file = std::fopen((path + ".new").c_str(), "w");
    std::fwrite(value.data(), 1, value.size(), file);
    std::fclose(file);
    std::rename((path + ".new").c_str(), path.c_str());
    return {};
  }
  base::Result<std::string> get(const std::string& key, base::TimePoint deadline) override {
    while (base::SystemClock().now() < deadline) {
      if (FILE* const file = std::fopen(path_of(key).c_str(), "r"); file != nullptr) {
        char text[256];
        const std::size_t bytes = std::fread(text, 1, sizeof text, file);
        std::fclose(file);
        return std::string(text, bytes);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return base::deadline_exceeded("no key " + key);
  }

 private:
  [[nodiscard]] std::string path_of(std::string key) const {
    for (char& c : key) c = c == '/' ? '-' : c;
    return folder_ + "/" + key;
  }
  const std::string folder_;
};

// Runs `body` in a thread for each rank; `hosts`: the name that each gives its host.
template <class Body>
void with_ranks(const std::vector<std::string>& hosts, Body body) {
  MemoryStore store;
  std::vector<std::thread> threads;
  const int size = static_cast<int>(hosts.size());
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto group = Group::form(store, rank, size, std::chrono::seconds(30),
                               hosts[static_cast<std::size_t>(rank)]);
      ASSERT_TRUE(group.ok()) << group.status().to_string();
      body(**group);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

template <class Body>
void with_ranks(int size, Body body) {
  with_ranks(std::vector<std::string>(static_cast<std::size_t>(size)), std::move(body));
}

inline Operation sum(std::vector<std::int64_t>& values) {
  const auto bytes = std::as_writable_bytes(std::span(values));
  return Operation::allreduce(bytes, bytes, Dtype::kInt64);
}

class GroupOfProcesses : public ::testing::Test {
 public:
  void SetUp() override { ASSERT_NE(::mkdtemp(folder_.data()), nullptr); }
  void TearDown() override { std::system(("rm -r " + folder_).c_str()); }

  // Runs `body` as rank `rank` of `size`, on `host`, in a child, which ends with what it returns.
  template <class Body>
  pid_t fork_rank(int rank, const std::string& host, Body body, int size = 2) {
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    FileStore store(folder_);
    auto group = Group::form(store, rank, size, std::chrono::seconds(30), host);
    const int status = group.ok() ? body(**group) : 99;
    if (group.ok()) group.value().reset();
    ::_exit(status);
  }
  // Runs `body` as all ranks, in children, and expects that their expectations hold. `hosts`: the
  // name that each gives its host.
  template <class Body>
  void with_forked_ranks(const std::vector<std::string>& hosts, Body body) {
    const int size = static_cast<int>(hosts.size());
    std::vector<pid_t> ranks;
    for (int rank = 0; rank < size; ++rank) {
      const auto run = [&body](Group& group) {
        body(group);
        return ::testing::Test::HasFailure() ? 1 : 0;
      };
      ranks.push_back(fork_rank(rank, hosts[static_cast<std::size_t>(rank)], run, size));
    }
    for (const pid_t rank : ranks) EXPECT_EQ(status_of(rank), 0);
  }
  static int status_of(pid_t pid) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
  }

  std::string folder_ = "/tmp/regroup-group-XXXXXX";
};

}  // namespace regroup::collective::group
