// A child process with pipes for its standard streams: delivers its lines, feeds its input, reports
// its end.
#pragma once

#include <utility>

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "launcher/process/output_lines.h"
#include "launcher/process/reaped_child.h"
#include "launcher/process/spawn.h"

namespace regroup::process {

// Used by the loop's thread; kept alive by its pending operations until the process has ended.
class PipedProcess : public std::enable_shared_from_this<PipedProcess> {
 public:
  struct Events {
    // A line, as OutputLines splits them. `error`: of standard error.
    std::function<void(std::string_view line, bool error)> line;
    // Called last: the wait status. All output of the process itself was delivered before.
    std::function<void(int wait_status)> ended;
  };

  // Starts the process of `spec` with pipes for the standard streams. The kernel kills it when this
  // thread ends.
  [[nodiscard]] static base::Result<std::shared_ptr<PipedProcess>> start(
      boost::asio::io_context& loop, SpawnSpec spec, Events events);
  [[nodiscard]] pid_t pid() const { return pid_; }
  // Kills a running process; no event is delivered any more. It is reaped when the loop sees its
  // end.
  void abandon();

  // Queues bytes for its standard input. Never blocks; dropped once the process has closed its
  // input.
  void feed(std::string_view bytes);
  // Descriptor of its standard input; -1 once closed. Queued bytes are surely in the pipe only when
  // the process has answered them.
  [[nodiscard]] int input() { return in_.is_open() ? in_.native_handle() : -1; }
  void close_input();
  // Kills the process with its process group.
  void kill();

 private:
  struct Stream {
    explicit Stream(boost::asio::io_context& loop, bool is_error) : pipe(loop), error(is_error) {}
    boost::asio::posix::stream_descriptor pipe;
    bool error;
    OutputLines lines;
  };
  PipedProcess(boost::asio::io_context& loop, pid_t pid, Events events);

  void wait_output(Stream& stream);
  // Bytes read; 0 at the end, -1 if there is nothing now.
  ssize_t read(Stream& stream);
  void tell(const Stream& stream, const std::vector<std::string>& lines);
  void tell_rest(Stream& stream);
  void write();
  void wait_end();
  void on_end();

  Events events_;
  boost::asio::posix::stream_descriptor in_;
  boost::asio::posix::stream_descriptor pidfd_;
  Stream out_;
  Stream err_;
  std::string to_write_;
  bool writing_ = false;
  const pid_t pid_;
  const ReapedChild child_;
};

}  // namespace regroup::process
