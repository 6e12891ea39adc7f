// The checkpoints of an elastic job, in the agent: decides which of the members' saves are written,
// and how long the end of the job waits for them. Three parts each run a regroup-persist process:
// LocalDirectory locks the directory, SaveWriter writes a save, DirectoryCopy copies it to a second
// directory. LastSave asks the members for a save before an announced end.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/writer/checkpoint_texts.h"
#include "checkpoint/writer/checkpoint_watcher.h"
#include "checkpoint/writer/directory_copy.h"
#include "checkpoint/writer/last_save.h"
#include "checkpoint/writer/local_directory.h"
#include "checkpoint/writer/save_writer.h"
#include "launcher/spec/checkpoint_plan.h"
#include "shmem/arena.h"
#include "shmem/save_mark.h"

namespace regroup::writer {

// How long the end of the job waits for a disk that accepts no data.
inline constexpr std::chrono::seconds kDiskLimit{600};

// Waits for complete saves in the arena and has them written. Used by the loop's thread.
class Checkpoints {
 public:
  using Say = std::function<void(const std::string&)>;
  // `arena` returns the agent's arena, which may not be mapped yet. `host`: this host's name if the
  // job runs on several hosts (the controller then reports what it resumes from), else "".
  Checkpoints(boost::asio::io_context& loop, CheckpointPlan plan, std::string host,
              std::function<const shmem::Arena&()> arena, Say say, bool quiet);
  void start();
  // Call when the agent may have created its arena, or replaced it.
  void look_for_arena();
  // This host will be taken away at `deadline`: decides whether the checkpoint that is being
  // written, or another save, can be finished by then, and reports the decision with its
  // reason. Nothing is written after the deadline. A later call with an earlier deadline replaces
  // it.
  void on_notice(base::TimePoint deadline);
  // The job has failed and its members are about to be killed: requests a save from a member
  // that waits for others. Calls `then` once it is complete, or no member has claimed the request
  // in time.
  void save_now(std::function<void()> then);
  // A member of this host ended; it may have claimed the last save.
  void on_member_ended() { last_.on_member_ended(); }
  // The time until the deadline while something is being written; else zero.
  [[nodiscard]] base::Duration still_needs() const;
  // "the newest checkpoint is that of step 20 in DIR", as far as this host knows, and which one is
  // being written; "": the job makes no checkpoints.
  [[nodiscard]] std::string newest() const {
    return newest_of(plan_, committed_, writer_.writing() ? writer_.step() : 0, !host_.empty());
  }
  // Calls `then` once nothing is being written any more and no save waits.
  void finish(std::function<void()> then);
  // Call after that: which checkpoint the members' finish() relied on but is not on disk, and why;
  // "": none.
  [[nodiscard]] std::string unsaved() const;

 private:
  [[nodiscard]] bool is_local() const { return !host_.empty() && !plan_.shared.empty(); }
  void end_by(base::TimePoint deadline);
  [[nodiscard]] FinalCheckpointDecision choose() const;
  void request(shmem::SaveRequest::What what);
  void request_after_writing();
  [[nodiscard]] shmem::SaveMark mark() const;
  void set_mark(shmem::SaveMark::Phase phase, proto::Step step);
  void poll();
  [[nodiscard]] bool end_waits() const;
  void end_of_job(const shmem::SaveMark& mark);
  void write(proto::Step step);
  void on_write_ended(const WriteEnd& end);
  void report_written(const WriteEnd& end);
  void report_late(proto::Step written);
  void on_copy_ended(const CopyEnd& end);
  void report_copied(const CopyEnd& end);
  [[nodiscard]] base::Result<std::string> description(proto::Step step) const;
  void failed(proto::Step step, const std::string& why);
  void free_area(proto::Step step);
  void on_progress();

  const CheckpointPlan plan_;
  const std::string host_;
  const std::function<const shmem::Arena&()> arena_;
  const Say say_;
  const bool quiet_;
  boost::asio::io_context& loop_;

  // Saves of the members.
  std::unique_ptr<CheckpointWatcher> watcher_;
  int watched_ = -1;  // descriptor of the arena that watcher_ watches
  LastSave last_;

  // What is written. `attempts_` makes the UUID of each checkpoint unique.
  LocalDirectory directory_;
  SaveWriter writer_;
  DirectoryCopy copy_;
  std::uint64_t attempts_ = 0;
  proto::Step committed_ = 0;  // newest checkpoint of this job that is written; 0: none
  proto::Step failed_ = 0;     // step of the newest save that could not be written
  std::string failure_;        // why it could not

  // The end.
  boost::asio::steady_timer end_timer_;  // ends writing at the deadline, or after kDiskLimit
  std::optional<base::TimePoint> deadline_;
  bool stopped_ = false;        // nothing more is written before the deadline
  std::string cut_off_;         // why a writing process was killed
  std::function<void()> then_;  // the job is over: called when nothing is being written any more
};

}  // namespace regroup::writer
