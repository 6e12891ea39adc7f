// Distributes the standard input of a job to the hosts whose members read it. One reader serves all
// of them: several readers of one descriptor would take bytes from each other.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <memory>

#include "base/fd.h"
#include "base/status.h"
#include "launcher/process/stdin_feed.h"

namespace regroup::agent {

// Used by the loop's thread.
class SharedInput {
 public:
  // `here`: replaces descriptor 0 by a pipe from which members on this host read the same bytes.
  [[nodiscard]] base::Status open(boost::asio::io_context& loop, bool here);
  // Adds the writing end of a non-blocking pipe; an invalid one is ignored. After open(), before
  // start().
  void add(base::Fd pipe);
  // Do nothing without open().
  void start();
  void stop();

 private:
  base::Fd input_;
  std::shared_ptr<process::StdinFeed> feed_;
};

}  // namespace regroup::agent
