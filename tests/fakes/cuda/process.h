// Processes that use the fake driver, for its tests: the settings are read once in a process.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/types.h>

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "tests/fakes/cuda/results.h"

namespace regroup::fakes::cuda {

// The fake, loaded as the product loads the driver. Fails the test if it cannot be.
[[nodiscard]] Driver load_fake();

// A process with a context of device 0 and a stream that is not ordered with the default one.
struct Gpu {
  Gpu();

  Driver driver;  // NOLINT(readability-identifier-naming)
  Context context = nullptr;
  Stream stream = nullptr;

  const Driver* operator->() const { return &driver; }

  [[nodiscard]] Stream new_stream() const;
  [[nodiscard]] DriverEvent new_event(unsigned flags) const;
  [[nodiscard]] DevicePointer allocate(std::size_t bytes) const;
  [[nodiscard]] Allocation create(std::size_t bytes) const;
  [[nodiscard]] int export_of(Allocation allocation) const;
  [[nodiscard]] Allocation import_of(int descriptor) const;
  // Reserves addresses and maps; access 0: none.
  [[nodiscard]] DevicePointer map(Allocation allocation, std::size_t bytes, int access) const;

  // Launches of the kernels that the fake has.
  DriverResult store_word(DevicePointer at, std::uint32_t word, Stream on) const;
  DriverResult store_time(DevicePointer at, std::uint64_t nanoseconds, Stream on) const;
  [[nodiscard]] Function function(const char* name) const;
  DriverResult launch(Function function, void** parameters, Stream on) const;
  // The word at `at`, by a copy and a wait.
  [[nodiscard]] std::uint32_t word(DevicePointer at) const;

 private:
  Function store_word_ = nullptr;
  Function store_time_ = nullptr;
};

// Work that lasts until the test lets it end.
class Hold {
 public:
  // Launches it on `on`.
  Hold(const Gpu& gpu, Stream on);
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  void release() { *released_ = true; }

 private:
  std::atomic<bool>* released_;  // lives as long as the process, as the work may
};

// Pinned memory of the host.
class Pinned {
 public:
  Pinned(const Gpu& gpu, std::size_t count);
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  ~Pinned();

  std::vector<std::uint32_t> words;  // NOLINT(readability-identifier-naming)

 private:
  const Gpu& gpu_;
};

// A child process with its settings. Ends when `body` returns, with 1 if an expectation failed.
class Process {
 public:
  using Body = std::function<void(int socket)>;
  explicit Process(const Body& body, const std::string& settings = "",
                   const std::string& faults = "");
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process();  // kills and reaps

  [[nodiscard]] int socket() const { return socket_; }
  void kill();
  // The wait status; waits for at most 60 s.
  int wait();

 private:
  pid_t pid_ = -1;
  int socket_ = -1;
};

// A function that only the fake has.
template <class Function>
Function fake_function(const char* name) {
  void* library = ::dlopen(FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
  void* found = library == nullptr ? nullptr : ::dlsym(library, name);
  EXPECT_NE(found, nullptr) << name;
  return reinterpret_cast<Function>(found);
}

// Runs `body` in a Process and expects that it succeeds.
void in_process(const std::function<void()>& body, const std::string& settings = "",
                const std::string& faults = "");

// A byte, with a descriptor unless it is -1. receive() returns -1 for none, and fails the test if
// nothing comes within 30 s; the receiver owns the descriptor.
void send(int socket, int descriptor = -1);
int receive(int socket);
[[nodiscard]] bool has_message(int socket);

}  // namespace regroup::fakes::cuda
