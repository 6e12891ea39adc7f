// The agent's side of regroup-devices, the process that creates memory of the host's GPUs.
// docs/design/device_memory.md.
#pragma once

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "launcher/process/app.h"
#include "launcher/process/reaped_child.h"
#include "proto/message.h"

namespace regroup::job {

struct DeviceAllocatorOptions {
  std::string program;            // path of regroup-devices
  spec::Environment environment;  // CUDA_VISIBLE_DEVICES is removed: members may have any GPU
  base::Duration answer_limit = std::chrono::seconds(30);  // to load the driver, or for one answer
  int tries = 3;  // processes that may end before they have answered a request
};

// Used by the loop's thread. Starts the process at the first request and, if it has ended, at the
// next one. The destructor ends it.
class DeviceAllocator {
 public:
  // Called from the loop, never within allocate(). `memory.why` is "" if there is a descriptor.
  using Done = std::function<void(const proto::DeviceMemory& memory, base::Fd descriptor)>;

  DeviceAllocator(boost::asio::io_context& loop, DeviceAllocatorOptions options);
  ~DeviceAllocator();
  DeviceAllocator(const DeviceAllocator&) = delete;
  DeviceAllocator& operator=(const DeviceAllocator&) = delete;

  // Requests memory on the GPU of that UUID. Never blocks, but for the start of a process. A
  // request whose process ends is repeated with another process; after `tries` of them, or if there
  // is no answer to any request for answer_limit, it fails.
  void allocate(const std::string& gpu, std::uint64_t bytes, Done done);
  [[nodiscard]] pid_t pid() const { return pid_; }  // 0: no process was started, or it has ended

 private:
  struct Request {
    proto::AllocateDeviceMemory wanted;
    Done done;
    int ended = 0;      // processes that have ended before an answer
    bool sent = false;  // to the process that runs
  };

  [[nodiscard]] base::Status start();
  void send();
  void wait_read();
  void read();
  void await_answer();
  void on_lost(const base::Status& why);
  void end();
  void fail(std::uint64_t request, const std::string& why);
  void fail_all(const std::string& why);

  boost::asio::io_context& loop_;
  const DeviceAllocatorOptions options_;
  boost::asio::posix::stream_descriptor socket_;
  boost::asio::steady_timer deadline_;         // of the next answer
  bool awaits_answer_ = false;                 // deadline_ runs
  std::map<std::uint64_t, Request> requests_;  // without an answer
  std::uint64_t last_ = 0;
  pid_t pid_ = 0;
  std::optional<process::ReapedChild> child_;                   // of pid_
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // for posted calls
};

}  // namespace regroup::job
