// The client's side of the coordinator's control socket.
#pragma once

#include <string>
#include <utility>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "proto/wire.h"

namespace regroup::cli {

// One request at a time, blocking, for 10 s at most.
class ControlClient {
 public:
  explicit ControlClient(base::Fd socket) : socket_(std::move(socket)) {}

  [[nodiscard]] base::Result<proto::Body> ask(const proto::Body& request);
  // The job's status, which is JSON.
  [[nodiscard]] base::Result<std::string> status();

 private:
  [[nodiscard]] base::Status read_some(base::TimePoint deadline);

  base::Fd socket_;
  proto::FrameReader reader_;
  base::SystemClock clock_;
};

// Prints `message` on standard error; returns the exit status of a command that failed.
int command_failed(const std::string& message);

}  // namespace regroup::cli
