// Where `regroup kill-member` has a member of a job without a coordinator killed.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <string>

#include "base/fd.h"
#include "base/status.h"
#include "launcher/transport/unix_socket.h"

namespace regroup::job {

struct JobFiles;

// The job's side. Used by the loop's thread.
class KillRequests {
 public:
  // Kills `member`, "3" or "worker:1"; returns a sentence for the user, or why it is not killed.
  using Kill = std::function<base::Result<std::string>(const std::string& member)>;
  KillRequests(boost::asio::io_context& loop, Kill kill);
  // Listens at `path`.
  [[nodiscard]] base::Status start(const std::string& path) { return listener_.start(path); }

 private:
  void wait_for_request(base::Fd socket);
  void answer();

  boost::asio::io_context& loop_;
  const Kill kill_;
  transport::Listener listener_;
  boost::asio::posix::stream_descriptor asker_;  // the last one that has connected
};

// The user's side: returns the job's sentence. Blocks for it, at most 60 s. kNotFound: the job
// takes no such requests; kInvalidArgument: the job's reason.
[[nodiscard]] base::Result<std::string> kill_member(const JobFiles& files,
                                                    const std::string& member);

}  // namespace regroup::job
