// What a member did and when, for --timeline: a file of the Chrome trace format, which
// chrome://tracing and ui.perfetto.dev show. docs/reference/formats/timeline.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "proto/world.h"

namespace regroup::elastic {

// REGROUP_TIMELINE; empty: none. In options.cc, the only source that reads the environment.
[[nodiscard]] std::string timeline_file();
// The track of a process that joins no World: REGROUP_JOB, GROUP_RANK and REGROUP_MEMBER. Also
// there.
struct TimelinePlace {
  std::string job;
  proto::NodeId node = 0;
  proto::MemberId member = 0;
};
[[nodiscard]] TimelinePlace timeline_place();

// The track of one member. A thread of its own appends the events to the file, so that a file
// system that does not answer stops the timeline and not the training; a fault is said once. Used
// by the training thread only, but for overlapping spans.
class Timeline {
 public:
  // All members of a host append to one file: `file`, or `file`.N on host N > 0. The first one of
  // another job than `job` empties it; a process outside a job (empty) always does. Does not touch
  // the file system.
  Timeline(const std::string& file, std::string job, proto::NodeId node, proto::MemberId member);
  ~Timeline();  // as flush()
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // A span begins, within the one that is open. `args`: of a JSON object, without its braces.
  void begin(std::string_view name, std::string_view args = {});
  void end(std::string_view args = {});  // the one that began last; none: nothing
  // Ends spans until `depth` are open.
  void end_to(int depth);
  [[nodiscard]] int depth() const { return depth_; }
  // A span that may overlap others, on a track of its own. Any thread. end_overlapping() takes what
  // begin_overlapping() has returned, and the same name.
  std::uint64_t begin_overlapping(std::string_view name, std::string_view args = {});
  void end_overlapping(std::uint64_t span, std::string_view name);
  // Waits until the file has all events, at most 10 s. Any thread.
  void flush();

 private:
  struct Writer;
  void add(std::string_view event, std::string_view args);

  const proto::MemberId member_;
  const base::Duration offset_;  // of the wall clock from the steady one
  int depth_ = 0;
  std::atomic<std::uint64_t> overlapping_ = 0;
  std::shared_ptr<Writer> writer_;
};

// A span that ends with the scope; also ends those that began in it. `timeline` may be null.
class TimelineSpan {
 public:
  TimelineSpan(Timeline* timeline, std::string_view name, std::string_view args = {})
      : timeline_(timeline), depth_(timeline == nullptr ? 0 : timeline->depth()) {
    if (timeline_ != nullptr) timeline_->begin(name, args);
  }
  ~TimelineSpan() {
    if (timeline_ == nullptr) return;
    timeline_->end_to(depth_ + 1);
    if (timeline_->depth() > depth_) timeline_->end(args_);
  }
  TimelineSpan(const TimelineSpan&) = delete;
  TimelineSpan& operator=(const TimelineSpan&) = delete;
  void set_args(std::string args) { args_ = std::move(args); }

 private:
  Timeline* const timeline_;
  const int depth_;
  std::string args_;
};

// `text` as a JSON string, with its quotes.
[[nodiscard]] std::string json_string(std::string_view text);

}  // namespace regroup::elastic
