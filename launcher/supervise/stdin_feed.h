// The launcher's standard input on its way to rank 0.
#pragma once

#include <utility>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <memory>
#include <string_view>

#include "core/fd.h"
#include "launcher/supervise/readiness.h"

namespace regroup::launcher {

// Reads no more than the member takes. The end of the input closes the pipe; a member that closed its own end
// ends the reading. Kept alive by its own pending operations until stop().
class StdinFeed : public std::enable_shared_from_this<StdinFeed> {
 public:
  // `input` is borrowed; `pipe` is the writing end.
  StdinFeed(boost::asio::io_context& loop, int input, core::Fd pipe);
  void start() { wait_input(); }
  void stop();

 private:
  void wait_input();
  void read();
  void write();

  Readiness readiness_;
  int input_;
  boost::asio::posix::stream_descriptor pipe_;
  std::array<char, 64 << 10> bytes_{};
  std::string_view rest_;
};

}  // namespace regroup::launcher
