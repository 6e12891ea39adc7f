// Pipe to lines to sinks, with back-pressure; one chunk at a time, so that every member gets its turn.
//
// Where much is in a pipe and it goes to one place as it is, all but the last kLongestLine bytes are moved
// without a copy. The line that is under way then ends in those, or it is one that may be cut.
#include "launcher/supervise/output.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

namespace regroup::launcher {
namespace {

constexpr std::size_t kFullPipe = 64 << 10;  // what a pipe holds at first

}  // namespace

Output::Output(boost::asio::io_context& loop, core::Fd pipe, OutputPath path,
               std::shared_ptr<OutputSpace> space)
    : pipe_(loop, pipe.release()), path_(std::move(path)), space_(std::move(space)), prompt_(loop) {}

void Output::wait() {
  pipe_.async_wait(pipe_.wait_read, [self = shared_from_this()](const boost::system::error_code& error) {
    if (!error) self->run();
  });
}

void Output::finish() {
  last_ = true;
  if (open() && !paused_) run();
}

void Output::run() {
  do {
    step();
  } while (open() && !paused_ && last_);
  if (open() && !paused_) wait();
}

void Output::step() {
  if (unheard()) return close();
  if (!moving_ && held_back()) return;
  if (!moving_) to_move_ = movable();
  if (to_move_ > 0) return move();
  copy();
}

// True if a sink is congested; it will call.
bool Output::held_back() {
  const auto full = std::find_if(path_.sinks.begin(), path_.sinks.end(),
                                 [](const Sink* sink) { return sink->congested(); });
  if (full == path_.sinks.end()) return false;
  paused_ = true;
  (*full)->when_free([self = shared_from_this()] {
    self->paused_ = false;
    if (self->open()) self->run();
  });
  return true;
}

// All sinks are broken, and not only for want of space.
bool Output::unheard() const {
  bool gone = false;
  for (const Sink* sink : path_.sinks) {
    if (sink->error().ok()) return false;
    gone = gone || sink->error().code() == core::Code::kPeerLost;
  }
  return gone;
}

std::size_t Output::movable() {
  if (!much_ || path_.sinks.size() != 1 || !path_.sinks[0]->moves() || !path_.tag.empty()) return 0;
  if (!cutter_.rest().empty()) return 0;
  int held = 0;
  if (::ioctl(pipe_.native_handle(), FIONREAD, &held) != 0) return 0;
  const auto bytes = static_cast<std::size_t>(held);
  return bytes >= 2 * kLongestLine ? bytes - kLongestLine : 0;
}

void Output::move() {
  Sink& sink = *path_.sinks[0];
  moving_ = true;
  while (to_move_ > 0) {
    const std::size_t count = sink.move(pipe_.native_handle(), to_move_);
    if (count == 0) break;
    to_move_ -= count;
  }
  if (to_move_ == 0 || !sink.moves()) {
    to_move_ = 0;
    return copy();
  }
  paused_ = true;
  sink.when_writable([self = shared_from_this()] {
    self->paused_ = false;
    if (self->open()) self->run();
  });
}

void Output::copy() {
  char* const space = space_->read.data();
  const std::string& rest = cutter_.rest();
  std::copy(rest.begin(), rest.end(), space);
  const ssize_t count = ::read(pipe_.native_handle(), space + rest.size(), OutputSpace::kChunk);
  if (count > 0) {
    const auto bytes = static_cast<std::size_t>(count);
    if (bytes >= kFullPipe && !std::exchange(much_, true)) {
      ::fcntl(pipe_.native_handle(), F_SETPIPE_SZ, path_.large_pipe);  // refused: as it was
    }
    const std::string_view all(space, rest.size() + bytes);
    const std::string_view ready = path_.raw && path_.tag.empty() ? all : cutter_.cut(all);
    give(ready);
    if (path_.prompt_after.count() > 0) watch_for_prompt(!ready.empty());
  } else if (count == 0 || (errno != EINTR && (errno != EAGAIN || last_))) {
    close();
  }
}

void Output::give(std::string_view bytes) {
  if (!path_.tag.empty() && !bytes.empty()) {
    space_->tagged.clear();
    append_prefixed(space_->tagged, bytes, path_.tag.at(std::time(nullptr)));
    bytes = space_->tagged;
  }
  if (std::exchange(moving_, false)) return path_.sinks[0]->end_move(bytes);
  for (Sink* sink : path_.sinks) sink->write(bytes);
}

// Counted from the first bytes of a line on: one that grows all the time, a progress bar, is seen growing.
void Output::watch_for_prompt(bool new_line) {
  if (cutter_.rest().empty() || (prompting_ && !new_line)) return;
  prompting_ = true;
  prompt_.expires_after(path_.prompt_after);  // a wait that goes on is cancelled
  prompt_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (error) return;
    self->prompting_ = false;
    self->prompt();
  });
}

// What is on its way already may end the line, and must not be overtaken by lines of others.
void Output::prompt() {
  int more = 0;
  if (!open() || cutter_.rest().empty()) return;
  if (paused_ || moving_ || (::ioctl(pipe_.native_handle(), FIONREAD, &more) == 0 && more > 0))
    return watch_for_prompt(false);
  give(cutter_.take_rest());
}

void Output::close() {
  if (!open()) return;
  prompt_.cancel();
  give(cutter_.rest());
  boost::system::error_code ignored;
  pipe_.close(ignored);
  if (path_.closed) path_.closed();
}

}  // namespace regroup::launcher
