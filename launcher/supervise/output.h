// The standard output or error of one member on its way to a Sink.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <memory>
#include <string>

#include "core/fd.h"
#include "launcher/supervise/line_cutter.h"
#include "launcher/supervise/sink.h"

namespace regroup::launcher {

// Kept alive by its own pending operations. Reads nothing while the sink is congested, so the member blocks
// in its write, as it would on a pipe. When the sink's reader is gone the pipe is closed: the member gets
// SIGPIPE, as it would without a launcher between.
class Output : public std::enable_shared_from_this<Output> {
 public:
  // `pipe` is the reading end. `closed` is called once, after the last line was given to the sink.
  Output(boost::asio::io_context& loop, core::Fd pipe, std::string prefix, Sink& sink,
         std::function<void()> closed);
  void start() { wait(); }
  // All writers are dead: what is in the pipe now is the rest; do not wait for its end.
  void finish();
  [[nodiscard]] bool open() const { return pipe_.is_open(); }

 private:
  void wait();
  void read();
  void close();

  boost::asio::posix::stream_descriptor pipe_;
  LineCutter cutter_;
  Sink& sink_;
  std::function<void()> closed_;
  bool last_ = false;
  bool paused_ = false;
};

}  // namespace regroup::launcher
