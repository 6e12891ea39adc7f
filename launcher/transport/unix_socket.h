// Named Unix sockets of a job: private folder, listening, connecting. All peers must have this
// process's uid.
#pragma once

#include <utility>

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <string>

#include "base/fd.h"
#include "base/status.h"

namespace regroup::transport {

// Creates the folder `path` with mode 0700 unless it exists; kInvalidArgument: it is no folder,
// belongs to another user, or is open to others.
[[nodiscard]] base::Status make_private_folder(const std::string& path);

// Connects. Blocks only while the listener's queue is full.
[[nodiscard]] base::Result<base::Fd> connect_unix(const std::string& path);

class Listener {
 public:
  // Called on the loop's thread for each connection; `peer`: pid of the process that connected.
  using Handler = std::function<void(base::Fd socket, pid_t peer)>;
  Listener(boost::asio::io_context& loop, Handler accepted)
      : socket_(loop), accepted_(std::move(accepted)) {}
  // Listens at `path`; replaces a stale socket of that name.
  [[nodiscard]] base::Status start(const std::string& path);

 private:
  void wait();

  boost::asio::posix::stream_descriptor socket_;
  Handler accepted_;
};

}  // namespace regroup::transport
