// Processes of gpu_truths that use the GPU. The process that starts them does not, so that it may
// fork. Each role has a channel of messages to its starter.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collective/cuda/driver.h"

namespace regroup::gpu {

inline constexpr auto kSuccess = collective::cuda::DriverResult::kSuccess;

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

[[nodiscard]] double milliseconds_since(Time begin);
// CLOCK_MONOTONIC in milliseconds: comparable among processes.
[[nodiscard]] double now_ms();

struct Message {
  std::array<char, 256> text{};
  std::array<double, 24> values{};
};

// One end of a socket pair. Sends and receives whole messages, with at most one descriptor each.
class Channel {
 public:
  explicit Channel(int socket) : socket_(socket) {}
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  ~Channel();

  // The receiver owns a copy of `descriptor`. False if the other end is gone.
  bool send(const std::string& text, const std::vector<double>& values = {}, int descriptor = -1);
  struct Received {
    std::string text;
    std::array<double, 24> values{};
    int descriptor = -1;
  };
  // Nothing if the other end is gone or silent for `timeout`.
  std::optional<Received> receive(std::chrono::milliseconds timeout);
  // True if a message or the end of the other side is there.
  [[nodiscard]] bool is_ready() const;

 private:
  int socket_;
};

// A child process. It ends when `body` returns, and is killed by the destructor.
class Role {
 public:
  explicit Role(const std::function<void(Channel&)>& body);
  Role(const Role&) = delete;
  Role& operator=(const Role&) = delete;
  ~Role();

  Channel& channel() { return *channel_; }
  // The next message. Throws std::runtime_error if there is none in time, or if the role reports
  // an error.
  Channel::Received wait(std::chrono::seconds timeout = std::chrono::seconds(10));
  // Sends SIGKILL. The destructor, or reap(), waits for the end.
  void kill() const;
  // Waits for the end for at most 20 s, and returns the wait status. Throws std::runtime_error.
  int reap();

 private:
  pid_t pid_ = -1;
  bool reaped_ = false;
  std::unique_ptr<Channel> channel_;
};

// The GPU as one role sees it. A failed call reports itself on the channel and ends the role.
class Gpu {
 public:
  enum class With { kNothing, kContext };
  Gpu(Channel& channel, const std::string& library, With with);

  const collective::cuda::Driver* operator->() const { return &driver_; }
  void check(collective::cuda::DriverResult result, const std::string& call) const;
  // The name of a result: "CUDA_ERROR_ILLEGAL_ADDRESS".
  [[nodiscard]] std::string name(collective::cuda::DriverResult result) const;
  [[nodiscard]] collective::cuda::Stream stream() const { return stream_; }
  // The times of cuInit() and of the context, in milliseconds.
  [[nodiscard]] double init_ms() const { return init_ms_; }
  [[nodiscard]] double context_ms() const { return context_ms_; }

  // Device memory that can be exported, without a mapping. `bytes`: a multiple of 2 MiB.
  [[nodiscard]] collective::cuda::Allocation create(std::size_t bytes) const;
  [[nodiscard]] int export_of(collective::cuda::Allocation allocation) const;
  [[nodiscard]] collective::cuda::Allocation import_of(int descriptor) const;
  [[nodiscard]] collective::cuda::DevicePointer map(collective::cuda::Allocation allocation,
                                                    std::size_t bytes, int access) const;
  // Launches one thread of a kernel of truths.cc: store_word(to, value) or store_time(to, ns).
  collective::cuda::DriverResult store_word(collective::cuda::DevicePointer to,
                                            unsigned value) const;
  collective::cuda::DriverResult store_time(collective::cuda::DevicePointer to,
                                            unsigned long long nanoseconds) const;
  collective::cuda::DriverResult synchronize() const { return driver_.stream_synchronize(stream_); }
  // Free bytes of the device.
  [[nodiscard]] double free_bytes() const;

 private:
  Channel& channel_;
  collective::cuda::Driver driver_;
  collective::cuda::Stream stream_ = nullptr;
  collective::cuda::Function store_word_ = nullptr;
  collective::cuda::Function store_time_ = nullptr;
  double init_ms_ = 0;
  double context_ms_ = 0;
};

}  // namespace regroup::gpu
