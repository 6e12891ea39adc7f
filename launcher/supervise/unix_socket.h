// Named Unix sockets of a job: a private folder for them, listening, connecting. Everybody who connects has
// our uid.
#pragma once

#include <utility>

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <string>

#include "core/fd.h"
#include "core/status.h"

namespace regroup::launcher {

// Makes `path` with mode 0700 unless it is there; kInvalidArgument if it is no folder, another user's, or
// open to others.
[[nodiscard]] core::Status make_private_folder(const std::string& path);

// Connects; does not block longer than the listener's queue is full.
[[nodiscard]] core::Result<core::Fd> connect_unix(const std::string& path);

class Listener {
 public:
  // `peer` is the process that connected. On the loop's thread.
  using Handler = std::function<void(core::Fd socket, pid_t peer)>;
  Listener(boost::asio::io_context& loop, Handler accepted) : socket_(loop), accepted_(std::move(accepted)) {}
  // Replaces a socket of that name that a predecessor left.
  [[nodiscard]] core::Status start(const std::string& path);

 private:
  void wait();

  boost::asio::posix::stream_descriptor socket_;
  Handler accepted_;
};

}  // namespace regroup::launcher
