// The standard output or error of one member on its way to its sinks.
#pragma once

#include <utility>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/fd.h"
#include "launcher/supervise/line_cutter.h"
#include "launcher/supervise/long_line.h"
#include "launcher/supervise/sink.h"
#include "launcher/supervise/tag.h"

namespace regroup::launcher {

// Memory that all outputs of a loop work in, one after the other.
struct OutputSpace {
  static constexpr std::size_t kChunk = 256 << 10;  // read at a time
  std::vector<char> read = std::vector<char>(kLineInMemory + kChunk);
  std::string tagged;
};

// What an Output does with what it reads.
struct OutputPath {
  std::vector<Sink*> sinks;
  Tag tag;
  bool raw = false;             // pieces as they come instead of lines
  int large_pipe = kLargePipe;  // bytes; what the pipe is made to hold if it fills up
  std::chrono::milliseconds
      prompt_after{};            // a line that does not end is written so late; 0: only at the end
  std::function<void()> closed;  // called once, after the last line was given to the sinks
  std::function<bool()>
      alone;  // nobody else writes to the sinks now, so a long line need not wait for its end
  std::function<void(const core::Status& why)>
      torn;  // called once, if there is no room for a long line; may be empty
};

// Kept alive by its own pending operations. Reads nothing while a sink is congested, so the member blocks in
// its write, as it would on a pipe. A line of more than kLineInMemory is kept in a file until its end, and
// then written with nothing in between. When the readers of all sinks are gone the pipe is closed: the member
// gets SIGPIPE, as it would without a launcher between. What a full disk refuses is dropped.
class Output : public std::enable_shared_from_this<Output> {
 public:
  // `pipe` is the reading end of a pipe or pseudo-terminal, non-blocking.
  Output(boost::asio::io_context& loop, core::Fd pipe, OutputPath path, std::shared_ptr<OutputSpace> space);
  void start() { wait(); }
  // All writers are dead: what is in the pipe now is the rest; do not wait for its end.
  void finish();
  [[nodiscard]] bool open() const { return pipe_.is_open(); }
  [[nodiscard]] bool writes_to(const Sink* sink) const { return std::ranges::count(path_.sinks, sink) != 0; }

 private:
  void wait();
  void run();
  void step();
  [[nodiscard]] bool held_back();
  [[nodiscard]] bool unheard() const;
  [[nodiscard]] std::size_t movable();
  void move();
  void copy();
  void take(std::string_view bytes);
  [[nodiscard]] bool keep(std::string_view bytes);
  void begin_long_line(bool whole);
  void write_long_line();
  void give(std::string_view bytes);
  void watch_for_prompt(bool new_line);
  void prompt();
  void close();

  boost::asio::posix::stream_descriptor pipe_;
  OutputPath path_;
  std::shared_ptr<OutputSpace> space_;
  LineCutter cutter_;
  LongLine long_;           // or its beginning; then the cutter keeps nothing
  std::string backlog_;     // what came behind the end of long_
  std::size_t sink_ = 0;    // that long_ is written to now
  std::uint64_t sent_ = 0;  // bytes of it
  boost::asio::steady_timer prompt_;
  boost::asio::steady_timer hold_;  // of a sink that waits for the end of a line that was moved in part
  std::size_t to_move_ = 0;
  bool moving_ = false;      // sinks[0] is ours until end_move()
  bool last_ = false;        // finish() was called
  bool paused_ = false;      // a sink will call
  bool much_ = false;        // the pipe was found full
  bool prompting_ = false;   // prompt_ runs
  bool waiting_ = false;     // the loop will call
  bool writing_ = false;     // long_ is whole, or as whole as it gets
  bool ended_ = false;       // nothing comes behind it
  bool cuts_ = false;        // long lines, for want of room
  bool long_lines_ = false;  // there was one
};

}  // namespace regroup::launcher
