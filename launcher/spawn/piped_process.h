// A child process with its three standard streams in our hands: lines come out, bytes go in, its end is told.
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

#include "core/status.h"
#include "launcher/spawn/output_lines.h"
#include "launcher/supervise/reaped_child.h"
#include "launcher/supervise/spawn.h"

namespace regroup::launcher {

// Used by the loop's thread; kept alive by its pending operations until the process has ended.
class PipedProcess : public std::enable_shared_from_this<PipedProcess> {
 public:
  struct Events {
    // As OutputLines cuts them. `error`: of the error output.
    std::function<void(std::string_view line, bool error)> line;
    // Last: as of waitpid. Whatever it wrote itself has been told.
    std::function<void(int wait_status)> ended;
  };

  // Starts what `spec` says, with pipes for in, out and err. The kernel kills it when this thread ends.
  [[nodiscard]] static core::Result<std::shared_ptr<PipedProcess>> start(boost::asio::io_context& loop,
                                                                         SpawnSpec spec, Events events);
  // No event comes any more, and a process that runs is killed. It is reaped when the loop sees its end.
  void abandon();

  // Queues bytes for its standard input. Never blocks; one that has closed its input gets nothing.
  void feed(std::string_view bytes);
  // Its standard input; -1 once closed. All that was fed is in the pipe only once the process has answered
  // it.
  [[nodiscard]] int input() { return in_.is_open() ? in_.native_handle() : -1; }
  void close_input();
  // With all of its process group.
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
  // Bytes that came; 0 at the end, -1 if there is nothing now.
  ssize_t read(Stream& stream);
  void tell(const Stream& stream, const std::vector<std::string>& lines);
  void tell_rest(Stream& stream);
  void write();
  void wait_end();
  void on_end();

  Events events_;
  boost::asio::posix::stream_descriptor in_, pidfd_;
  Stream out_, err_;
  std::string to_write_;
  bool writing_ = false;
  const pid_t pid_;
  const ReapedChild child_;
};

}  // namespace regroup::launcher
