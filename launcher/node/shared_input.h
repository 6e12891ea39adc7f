// Standard input of a job on its way to the hosts whose members get it: one reads, for all, or they would
// take bytes from each other.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <memory>

#include "core/fd.h"
#include "core/status.h"
#include "launcher/supervise/stdin_feed.h"

namespace regroup::node {

// Used by the loop's thread.
class SharedInput {
 public:
  // `here`: descriptor 0 becomes a pipe from which members here get the same.
  [[nodiscard]] core::Status open(boost::asio::io_context& loop, bool here);
  // After open(), before start(): the writing end of a pipe, non-blocking; one that is not valid is left out.
  void add(core::Fd pipe);
  // Without open() these do nothing.
  void start();
  void stop();

 private:
  core::Fd input_;
  std::shared_ptr<launcher::StdinFeed> feed_;
};

}  // namespace regroup::node
