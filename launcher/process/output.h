// Forwards the standard output or error of one member to its sinks.
#pragma once

#include <utility>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "launcher/process/line_cutter.h"
#include "launcher/process/long_line.h"
#include "launcher/process/sink.h"
#include "launcher/process/tag.h"

namespace regroup::process {

// Buffers that all outputs of a loop share, one at a time. Nothing is written to `memory` before it
// is read into: members that print little touch few of its pages.
struct OutputSpace {
  static constexpr std::size_t kChunk = 256 << 10;  // read at a time
  static constexpr std::size_t kBytes = kLineInMemory + kChunk;
  const std::unique_ptr<char[]> memory = std::make_unique_for_overwrite<char[]>(kBytes);
  const std::span<char> read{memory.get(), kBytes};
  std::string tagged;
};

// Destinations and format of an Output.
struct OutputPath {
  std::vector<Sink*> sinks;
  Tag tag;
  std::string own_prefix = {};  // of each line on the first sink, before the tag; "": none
  bool raw = false;             // forward chunks as they arrive instead of lines
  int large_pipe = kLargePipe;  // bytes; size to grow the pipe to when it is full
  std::chrono::milliseconds
      prompt_after{};  // an incomplete line is written after this time; 0: only at the end
  std::function<void()> closed;  // called once, after the last line was given to the sinks
  // No other output uses the sinks, so a long line need not wait for its end.
  std::function<bool()> alone;
  // Called once if a long line cannot be stored; may be empty.
  std::function<void(const base::Status& why)> torn;
};

// Kept alive by its pending operations. Reads nothing while a sink is congested, so that the member
// blocks in write() as on a pipe. A line longer than kLineInMemory is kept in a file until its end,
// and then written in one piece. When the readers of all sinks are gone the pipe is closed: the
// member gets SIGPIPE, as without a launcher. Bytes that a full disk refuses are dropped.
class Output : public std::enable_shared_from_this<Output> {
 public:
  // `pipe` is the reading end of a pipe or pseudo-terminal, non-blocking.
  Output(boost::asio::io_context& loop, base::Fd pipe, OutputPath path,
         std::shared_ptr<OutputSpace> space);
  void start() { wait(); }
  // All writers are dead: forwards what is in the pipe now without waiting for EOF.
  void finish();
  [[nodiscard]] bool open() const { return pipe_.is_open(); }
  [[nodiscard]] bool writes_to(const Sink* sink) const {
    return std::ranges::count(path_.sinks, sink) != 0;
  }

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
  [[nodiscard]] bool unchanged() const { return path_.tag.empty() && path_.own_prefix.empty(); }
  void watch_for_prompt(bool new_line);
  void prompt();
  void close();

  boost::asio::posix::stream_descriptor pipe_;
  OutputPath path_;
  std::shared_ptr<OutputSpace> space_;
  LineCutter cutter_;
  LongLine long_;           // the long line, or its beginning; the cutter keeps nothing then
  std::string backlog_;     // bytes after the end of long_
  std::size_t sink_ = 0;    // index of the sink that long_ is written to
  std::uint64_t sent_ = 0;  // bytes of it
  boost::asio::steady_timer prompt_;
  boost::asio::steady_timer hold_;  // limits how long a partly moved line blocks the sink
  std::size_t to_move_ = 0;
  bool moving_ = false;      // sinks[0] is reserved until end_move()
  bool last_ = false;        // finish() was called
  bool paused_ = false;      // resumed by a sink
  bool much_ = false;        // the pipe was full once
  bool prompting_ = false;   // prompt_ runs
  bool waiting_ = false;     // a wait for the pipe is pending
  bool writing_ = false;     // long_ is complete or final
  bool ended_ = false;       // EOF after it
  bool cuts_ = false;        // long lines are cut, since the file failed
  bool long_lines_ = false;  // a long line was seen
};

}  // namespace regroup::process
