// Copies from pipe to sinks with back-pressure, one chunk at a time, so that all members get their
// turn. When a pipe is full and its bytes go to one sink unchanged, all but the last kLineInMemory
// bytes are moved by splice(), unless a longer line has been seen. As a rule the current line ends
// in those last bytes; if not, other members' lines wait for its end, a second at most.
#include "launcher/process/output.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

namespace regroup::process {
namespace {

constexpr std::size_t kFullPipe = 64 << 10;  // default capacity of a pipe
constexpr std::chrono::seconds kLongestHold{1};

}  // namespace

Output::Output(boost::asio::io_context& loop, base::Fd pipe, OutputPath path,
               std::shared_ptr<OutputSpace> space)
    : pipe_(loop, pipe.release()),
      path_(std::move(path)),
      space_(std::move(space)),
      prompt_(loop),
      hold_(loop) {}

void Output::wait() {
  if (std::exchange(waiting_, true)) return;
  pipe_.async_wait(pipe_.wait_read,
                   [self = shared_from_this()](const boost::system::error_code& error) {
                     self->waiting_ = false;
                     if (!error && !self->paused_) self->run();
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
  if (writing_) return write_long_line();
  if (!moving_ && held_back()) return;
  if (!moving_) to_move_ = movable();
  if (to_move_ > 0) return move();
  copy();
}

// True if a sink is congested; it then resumes this output.
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

// All sinks are broken, at least one because its reader is gone.
bool Output::unheard() const {
  bool gone = false;
  for (const Sink* sink : path_.sinks) {
    if (sink->error().ok()) return false;
    gone = gone || sink->error().code() == base::Code::kPeerLost;
  }
  return gone;
}

std::size_t Output::movable() {
  if (!much_ || path_.sinks.size() != 1 || !path_.sinks[0]->moves() || !unchanged()) return 0;
  if (!cutter_.rest().empty() || !long_.empty() || long_lines_) return 0;
  int held = 0;
  if (::ioctl(pipe_.native_handle(), FIONREAD, &held) != 0) return 0;
  const auto bytes = static_cast<std::size_t>(held);
  return bytes >= 2 * kLineInMemory ? bytes - kLineInMemory : 0;
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
      ::fcntl(pipe_.native_handle(), F_SETPIPE_SZ, path_.large_pipe);  // if refused, the size stays
    }
    const std::string_view all(space, rest.size() + bytes);
    if ((path_.raw && unchanged()) || path_.sinks.empty()) return give(all);
    const bool prompts = path_.prompt_after.count() > 0;
    const bool new_line = prompts && all.find('\n') != std::string_view::npos;
    take(all);
    if (prompts) watch_for_prompt(new_line);
  } else if (count == 0 || (errno != EINTR && (errno != EAGAIN || last_))) {
    if (long_.empty()) return close();
    ended_ = true;
    begin_long_line(false);
  }
}

// `bytes`: what the cutter kept, and the new bytes.
void Output::take(std::string_view bytes) {
  if (!long_.empty()) {
    const std::size_t end = bytes.find('\n');
    const bool ends = end != std::string_view::npos;
    const std::string_view line = ends ? bytes.substr(0, end + 1) : bytes;
    const bool kept = keep(line);
    if (kept && !ends) return;
    backlog_ = kept ? bytes.substr(line.size()) : bytes;
    return begin_long_line(kept);
  }
  const std::string_view ready = cutter_.cut(bytes);
  const bool is_long = cutter_.rest().size() >= kLineInMemory;
  if ((is_long || moving_) && ready.empty() && path_.alone && path_.alone())
    return give(cutter_.take_rest());
  if (moving_ && ready.empty()) {  // a part of this line was moved
    const std::string rest = cutter_.take_rest();
    if (!keep(rest)) return give(rest);
    hold_.expires_after(kLongestHold);
    hold_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (!error && self->open() && self->moving_ && !self->writing_) self->begin_long_line(false);
    });
    return;
  }
  give(ready);
  if (!is_long) return;
  const std::string rest = cutter_.take_rest();
  const std::string_view tag =
      path_.tag.empty() ? std::string_view() : path_.tag.at(std::time(nullptr));
  if (!keep(std::string(tag) + rest)) give(rest);
}

// Appends to the long line. False: it cannot be stored; it is then written in pieces, as are all
// later ones.
bool Output::keep(std::string_view bytes) {
  long_lines_ = true;
  if (cuts_) return false;
  const base::Status kept = long_.append(bytes);
  if (kept.ok()) return true;
  cuts_ = true;
  if (path_.torn) path_.torn(kept);
  return false;
}

// `whole`: the line is complete. An incomplete one with a tag gets a newline.
void Output::begin_long_line(bool whole) {
  hold_.cancel();
  if (!whole && !unchanged()) (void)long_.append("\n");
  sink_ = 0, sent_ = 0;
  writing_ = true;
  write_long_line();
}

// Writes to one sink after the other; other outputs wait meanwhile.
void Output::write_long_line() {
  const auto resume = [self = shared_from_this()] {
    self->paused_ = false;
    if (self->open()) self->run();
  };
  for (; sink_ < path_.sinks.size(); ++sink_, sent_ = 0) {
    Sink& sink = *path_.sinks[sink_];
    if (!moving_ && sink.congested()) {
      paused_ = true;
      return sink.when_free(resume);
    }
    if (!std::exchange(moving_, true)) sink.hold();
    const std::string_view prefix = sink_ == 0 ? std::string_view(path_.own_prefix) : "";
    while (sent_ < prefix.size() + long_.size() && sink.error().ok()) {
      const bool before = sent_ < prefix.size();
      const std::size_t count = before ? prefix.size() - static_cast<std::size_t>(sent_)
                                       : long_.read(sent_ - prefix.size(), space_->read);
      if (count == 0) break;
      const std::size_t taken = sink.put(before ? prefix.substr(static_cast<std::size_t>(sent_))
                                                : std::string_view(space_->read.data(), count));
      sent_ += taken;
      if (taken < count && sink.error().ok()) {
        paused_ = true;
        return sink.when_writable(resume);
      }
    }
    moving_ = false;
    sink.end_move({});
  }
  writing_ = false;
  long_.clear();
  const std::string backlog = std::exchange(backlog_, {});
  if (ended_) return close();
  if (!backlog.empty()) take(backlog);
}

void Output::give(std::string_view bytes) {
  if (!path_.tag.empty() && !bytes.empty()) {
    space_->tagged.clear();
    append_prefixed(space_->tagged, bytes, path_.tag.at(std::time(nullptr)));
    bytes = space_->tagged;
  }
  if (std::exchange(moving_, false)) return path_.sinks[0]->end_move(bytes);
  if (path_.own_prefix.empty() || path_.sinks.empty() || bytes.empty()) {
    for (Sink* sink : path_.sinks) sink->write(bytes);
    return;
  }
  std::string prefixed;
  append_prefixed(prefixed, bytes, path_.own_prefix);
  path_.sinks[0]->write(prefixed);
  for (std::size_t i = 1; i < path_.sinks.size(); ++i) path_.sinks[i]->write(bytes);
}

// The time counts from the first bytes of a line, so that a growing line (a progress bar) is shown
// while it grows.
void Output::watch_for_prompt(bool new_line) {
  if ((cutter_.rest().empty() && long_.empty()) || (prompting_ && !new_line)) return;
  prompting_ = true;
  prompt_.expires_after(path_.prompt_after);  // cancels a pending wait
  prompt_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (error) return;
    self->prompting_ = false;
    self->prompt();
  });
}

// Bytes in the pipe may end the line, and lines of other members must not overtake them.
void Output::prompt() {
  int more = 0;
  if (!open() || writing_ || (cutter_.rest().empty() && long_.empty())) return;
  if (paused_ || moving_ || (::ioctl(pipe_.native_handle(), FIONREAD, &more) == 0 && more > 0))
    return watch_for_prompt(false);
  if (!long_.empty()) return begin_long_line(false);
  give(cutter_.take_rest());
}

void Output::close() {
  if (!open()) return;
  prompt_.cancel();
  hold_.cancel();
  if (std::exchange(writing_, false) && std::exchange(moving_, false))
    path_.sinks[sink_]->end_move({});
  give(cutter_.rest());
  boost::system::error_code ignored;
  pipe_.close(ignored);
  if (path_.closed) path_.closed();
}

}  // namespace regroup::process
