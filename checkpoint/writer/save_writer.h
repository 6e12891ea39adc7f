// Writes one save after another to a checkpoint directory, each by a regroup-persist process of its
// own: an error, a crash or a slow disk affects that checkpoint only and does not delay training.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "launcher/process/piped_process.h"
#include "proto/world.h"

namespace regroup::writer {

// The life of one writing process. It prints the step once the checkpoint is on disk, and may still
// have to remove older ones then: what happens after that does not undo the checkpoint.
enum class WriteStage : std::uint8_t { kIdle, kWriting, kCommitted };
enum class WriteEvent : std::uint8_t { kStarted, kPrintedStep, kEnded };

// An event without an edge leaves the stage as it is.
[[nodiscard]] WriteStage next_stage(WriteStage stage, WriteEvent event);

// What a writing process has left.
struct WriteEnd {
  proto::Step step = 0;
  bool committed = false;
  std::string errors;  // what it printed on standard error; if committed: a warning
  int wait_status = 0;
  double seconds = 0;  // how long it ran
  double bytes_per_second = 0;
};

// Used by the loop's thread, which also calls the events.
class SaveWriter {
 public:
  struct Events {
    std::function<void()> progress;  // the disk has accepted data
    std::function<void(const WriteEnd&)> ended;
  };
  SaveWriter(boost::asio::io_context& loop, std::string program, Events events);
  ~SaveWriter();  // kills the process and calls no event
  SaveWriter(const SaveWriter&) = delete;
  SaveWriter& operator=(const SaveWriter&) = delete;

  // Starts a process that maps `memfd` and writes the save of `step`, of `bytes` bytes. It reads
  // the description from describe(). None may be running.
  [[nodiscard]] base::Status start(proto::Step step, std::uint64_t bytes, int memfd);
  // Sends the description to the process that start() has started.
  void describe(const std::string& description);
  void kill();  // the end is reported

  [[nodiscard]] bool writing() const { return process_ != nullptr; }
  // The newest step that was begun; 0: none.
  [[nodiscard]] proto::Step step() const { return step_; }
  [[nodiscard]] base::Duration running_for(base::TimePoint now) const { return now - since_; }
  // Of the newest checkpoint, in bytes per second; 0: none was committed yet.
  [[nodiscard]] double bandwidth() const { return bandwidth_; }

 private:
  void on_line(std::string_view line, bool error);
  void on_ended(int wait_status);

  const std::string program_;
  const Events events_;
  boost::asio::io_context& loop_;
  std::shared_ptr<process::PipedProcess> process_;
  WriteStage stage_ = WriteStage::kIdle;
  std::string errors_;
  proto::Step step_ = 0;
  std::uint64_t bytes_ = 0;
  base::TimePoint since_{};
  double bandwidth_ = 0;
};

}  // namespace regroup::writer
