// Requests of a user's command to a running job that has no coordinator: one text each way, through
// a socket in the job's folder.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "launcher/transport/unix_socket.h"

namespace regroup::job {

// The job's side. Used by the loop's thread.
class JobRequests {
 public:
  // Sends a sentence for the user, or why the request is refused.
  using Answer = std::function<void(const base::Result<std::string>&)>;
  // Deals with a request. If no copy of `answer` is kept or called, the command sees that the
  // connection is closed.
  using Handle = std::function<void(const std::string& request, const Answer& answer)>;
  JobRequests(boost::asio::io_context& loop, Handle handle);
  // Listens at `path`.
  [[nodiscard]] base::Status start(const std::string& path) { return listener_.start(path); }

 private:
  void wait_for_request(base::Fd socket);
  void receive();

  boost::asio::io_context& loop_;
  const Handle handle_;
  transport::Listener listener_;
  boost::asio::posix::stream_descriptor asker_;  // the last one that has connected
};

// The user's side: returns the job's sentence. Blocks for it, at most `limit`. kNotFound with the
// text `none`: no socket is at `path`; kInvalidArgument: the job's reason.
[[nodiscard]] base::Result<std::string> ask_job(const std::string& path, const std::string& none,
                                                const std::string& request, base::Duration limit);

}  // namespace regroup::job
