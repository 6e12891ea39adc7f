// One destination of members' lines: an output of the launcher, or a file. Never blocks: it buffers
// bytes that its reader does not accept, and asks the writers to pause.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "launcher/process/readiness.h"
#include "launcher/process/terminal_line.h"

namespace regroup::process {

// Used by the loop's thread.
class Sink {
 public:
  using Resume = std::function<void()>;
  // `fd` is borrowed and its flags are not changed; a pipe may be enlarged. `name` is for messages.
  Sink(boost::asio::io_context& loop, int fd, std::string name = "output of the job");
  Sink(boost::asio::io_context& loop, base::Fd file, std::string name);
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  // True if the sink is a terminal.
  [[nodiscard]] bool terminal() const { return terminal_; }
  // Writes whole lines. Buffers what cannot be written now; drops them once the sink is broken.
  void write(std::string_view lines);
  // True while bytes are buffered or moved: write no more, and call when_free().
  [[nodiscard]] bool congested() const { return sent_ < pending_.size() || moving_; }
  // Buffered bytes.
  [[nodiscard]] std::size_t kept() const {
    return congested() ? pending_.size() + held_.size() : 0;
  }
  // Calls `resume` once, when the sink is not congested any more, or broken.
  void when_free(Resume resume) { waiting_.push_back(std::move(resume)); }

  // True unless splicing bytes from a pipe is known to be impossible.
  [[nodiscard]] bool moves() const { return moves_ && error_.ok(); }
  // Splices up to `bytes` from a pipe that holds them; returns how many. Reserves the sink until
  // end_move(). 0: call when_writable(), unless moves() has become false.
  [[nodiscard]] std::size_t move(int pipe, std::size_t bytes);
  void when_writable(Resume resume);
  // Reserves the sink until end_move(). Not while it is congested.
  void hold() { moving_ = true; }
  // Writes to a reserved sink without blocking; returns how many bytes. Fewer than given: call
  // when_writable(), unless it is broken.
  [[nodiscard]] std::size_t put(std::string_view bytes) { return write_some(bytes); }
  // Ends the reservation: writes `lines`, then what others wrote meanwhile.
  void end_move(std::string_view lines);

  // On a terminal only, else without effect. From now on bytes are written in turns of `line`,
  // which outlives this sink: the drawn line is erased before them.
  void share(TerminalLine* line) {
    line_ = terminal_ && kind_ == Kind::kNonBlocking ? line : nullptr;
  }
  // True if draw() has an effect: lines are shared.
  [[nodiscard]] bool draws() const { return line_ != nullptr; }
  // Makes `text`, one line without its end, the last line on the terminal; "": none. Does nothing
  // while another line is incomplete or the terminal takes no bytes.
  void draw(std::string_view text);

  // Why the sink is broken: the reader is gone (kPeerLost) or the device refused; ok otherwise.
  [[nodiscard]] const base::Status& error() const { return error_; }
  // `broken` is called once, when error() is set.
  void on_error(std::function<void(const base::Status&)> broken) { broken_ = std::move(broken); }

 private:
  enum class Kind { kFile, kSocket, kNonBlocking, kPolled };

  void open_own(int fd);
  void append(std::string_view lines);
  void push();
  [[nodiscard]] std::size_t write_some(std::string_view bytes);
  [[nodiscard]] std::size_t write_bytes(std::string_view bytes);
  void fail(int error, const char* call);
  void release_waiting();

  Readiness readiness_;
  base::Fd own_;  // the file, or a second open description of the borrowed one, non-blocking
  int fd_;
  Kind kind_ = Kind::kPolled;
  std::string name_;
  std::string pending_;   // bytes to write
  std::size_t sent_ = 0;  // number of bytes of pending_ that are written
  std::string held_;      // lines that arrived while `moving_`
  bool moving_ = false;
  bool moves_ = false;
  bool terminal_ = false;
  bool grown_ = false;
  TerminalLine* line_ = nullptr;
  std::vector<Resume> waiting_;
  std::function<void(const base::Status&)> broken_;
  base::Status error_;
};

// True if both descriptors refer to the same file: one Sink then serves both, so that no line is
// torn.
[[nodiscard]] bool same_file(int a, int b);

// Size to which a busy pipe is enlarged; the default limit for unprivileged users.
inline constexpr int kLargePipe = 1 << 20;

}  // namespace regroup::process
