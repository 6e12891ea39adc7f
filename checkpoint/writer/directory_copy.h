// Copies the newest checkpoints of one directory to a second one, in a regroup-persist process.
// Copying delays neither training nor the next checkpoint; a slow second directory misses some.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "launcher/process/piped_process.h"
#include "launcher/spec/checkpoint_plan.h"

namespace regroup::writer {

// At most one copy runs; a checkpoint that is committed meanwhile needs another one after it.
enum class CopyStage : std::uint8_t { kIdle, kCopying, kOutdated };
enum class CopyEvent : std::uint8_t { kCommitted, kEnded };

[[nodiscard]] CopyStage next_stage(CopyStage stage, CopyEvent event);

// What a copying process has left.
struct CopyEnd {
  bool outdated = false;  // another checkpoint was committed meanwhile
  int wait_status = 0;
  std::string step;    // the step that was copied; "": there was nothing to copy
  std::string errors;  // if it ended well: damaged checkpoints that it skipped
  double seconds = 0;  // how long it ran
};

// Used by the loop's thread, which also calls the events.
class DirectoryCopy {
 public:
  struct Events {
    std::function<void(const std::string&)> say;
    std::function<void()> progress;  // the second directory has accepted data
    std::function<void(const CopyEnd&)> ended;
  };
  // `plan` outlives this object. plan.shared is the second directory; "": nothing is copied.
  DirectoryCopy(boost::asio::io_context& loop, const spec::CheckpointPlan& plan,
                std::string program, Events events);
  ~DirectoryCopy();  // kills the process and calls no event
  DirectoryCopy(const DirectoryCopy&) = delete;
  DirectoryCopy& operator=(const DirectoryCopy&) = delete;

  // A checkpoint of `bytes` bytes was committed: copies it. While a copy runs, its CopyEnd becomes
  // outdated instead, and the caller decides whether to call this again.
  void on_commit(std::uint64_t bytes);
  void kill();  // the end is reported

  [[nodiscard]] bool copying() const { return process_ != nullptr; }
  [[nodiscard]] base::Duration running_for(base::TimePoint now) const { return now - since_; }
  // Of the newest copy, in bytes per second; 0: none yet.
  [[nodiscard]] double bandwidth() const { return bandwidth_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  void on_line(std::string_view line, bool error);
  void on_ended(int wait_status);

  const spec::CheckpointPlan& plan_;
  const std::string program_;
  const Events events_;
  boost::asio::io_context& loop_;
  std::shared_ptr<process::PipedProcess> process_;
  CopyStage stage_ = CopyStage::kIdle;
  std::string step_, errors_;
  std::uint64_t bytes_ = 0;
  base::TimePoint since_{};
  double bandwidth_ = 0;
};

}  // namespace regroup::writer
