// One destination of members' lines: an output of the launcher, or a file. Never blocks: what its reader does
// not take is kept, and who writes is asked to pause.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/fd.h"
#include "core/status.h"
#include "launcher/supervise/readiness.h"

namespace regroup::launcher {

// Used by the loop's thread.
class Sink {
 public:
  using Resume = std::function<void()>;
  // `fd` is borrowed and its flags stay as they are; a pipe may be made larger. `name` is for messages.
  Sink(boost::asio::io_context& loop, int fd, std::string name = "output of the job");
  Sink(boost::asio::io_context& loop, core::Fd file, std::string name);
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  // It is a terminal.
  [[nodiscard]] bool terminal() const { return terminal_; }
  // Whole lines. Keeps what cannot be written now; dropped once the sink is broken.
  void write(std::string_view lines);
  // True while something is kept or moved: then write no more, and ask when_free() for a call.
  [[nodiscard]] bool congested() const { return sent_ < pending_.size() || moving_; }
  // Bytes that are held in memory; while it is congested they do not become fewer.
  [[nodiscard]] std::size_t kept() const { return congested() ? pending_.size() + held_.size() : 0; }
  // Calls `resume` once the sink is not congested any more, or broke.
  void when_free(Resume resume) { waiting_.push_back(std::move(resume)); }

  // Bytes of a pipe can be moved here without a copy, as far as is known.
  [[nodiscard]] bool moves() const { return moves_ && error_.ok(); }
  // Moves up to `bytes` from a pipe that holds them; how many it did. From here on nobody else's lines are
  // written, until end_move(). 0: ask when_writable(), unless moves() has become false.
  [[nodiscard]] std::size_t move(int pipe, std::size_t bytes);
  void when_writable(Resume resume);
  // From here on nobody else's lines are written, until end_move(). Not while it is congested.
  void hold() { moving_ = true; }
  // How many of `bytes` it takes at once, while it is held. Fewer: ask when_writable(), unless it is broken.
  [[nodiscard]] std::size_t put(std::string_view bytes) { return write_some(bytes); }
  // `lines` go next, before what others wrote in the meantime.
  void end_move(std::string_view lines);

  // The reader is gone (kPeerLost) or the device refused.
  [[nodiscard]] const core::Status& error() const { return error_; }
  // `broken` is called once, when error() is set.
  void on_error(std::function<void(const core::Status&)> broken) { broken_ = std::move(broken); }

 private:
  enum class Kind { kFile, kSocket, kNonBlocking, kPolled };

  void open_own(int fd);
  void append(std::string_view lines);
  void push();
  [[nodiscard]] std::size_t write_some(std::string_view bytes);
  void fail(int error, const char* call);
  void release_waiting();

  Readiness readiness_;
  core::Fd own_;  // the file, or a description of our own of the borrowed one, non-blocking
  int fd_;
  Kind kind_ = Kind::kPolled;
  std::string name_;
  std::string pending_;  // of it, `sent_` bytes are written
  std::size_t sent_ = 0;
  std::string held_;  // written while `moving_`
  bool moving_ = false;
  bool moves_ = false;
  bool terminal_ = false;
  bool grown_ = false;
  std::vector<Resume> waiting_;
  std::function<void(const core::Status&)> broken_;
  core::Status error_;
};

// True if both descriptors lead to the same file: then one Sink serves both, and no line is torn.
[[nodiscard]] bool same_file(int a, int b);

// Bytes that a pipe is made to hold when it turns out to carry much; the most that everybody may ask for.
inline constexpr int kLargePipe = 1 << 20;

}  // namespace regroup::launcher
