// The checkpoints of an elastic job, in the agent: runs regroup-persist (the only program that uses
// HDF5) to write the members' saves, and to copy them to a second directory.
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
#include "checkpoint/writer/last_save.h"
#include "launcher/process/piped_process.h"
#include "launcher/process/run_in_subprocess.h"
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
  ~Checkpoints();
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
    return newest_of(plan_, committed_, process_ ? writing_ : 0, !host_.empty());
  }
  // Calls `then` once nothing is being written any more and no save waits.
  void finish(std::function<void()> then);
  // Call after that: which checkpoint the members' finish() relied on but is not on disk, and why;
  // "": none.
  [[nodiscard]] std::string unsaved() const;

 private:
  void check_directory();
  void lock_local_directory();
  void retry_lock();
  void report_not_locked(const std::string& why);
  void run_check(std::vector<std::string> argv);
  void on_check_ended(int wait_status);
  void on_lock_settled(bool held);
  void abandon_check();
  [[nodiscard]] bool release_local_directory();
  void end_by(base::TimePoint deadline);
  [[nodiscard]] FinalCheckpointDecision choose() const;
  void request_after_writing();
  void poll();
  void write(proto::Step step);
  void copy();
  void on_copy_ended(int wait_status);
  void on_write_ended(int wait_status);
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
  boost::asio::steady_timer end_timer_;   // ends writing at the deadline, or after kDiskLimit
  boost::asio::steady_timer lock_timer_;  // limits or repeats the locking of the local directory
  std::unique_ptr<CheckpointWatcher> watcher_;
  int watched_ = -1;  // descriptor of the arena that watcher_ watches
  // regroup-persist processes: one writes, one checks or locks the directory, one copies.
  std::shared_ptr<process::PipedProcess> process_, check_, copy_;
  bool locking_ = false;    // check_ is locking and preparing the local directory
  bool hangs_ = false;      // that has failed for now (not_locked_why_); finish() does not wait
  bool held_ = false;       // check_ holds the lock
  bool releasing_ = false;  // check_ is releasing the lock, since the job is over
  std::string check_error_, not_locked_why_;
  proto::Step writing_ = 0, committed_ = 0;  // newest of this job being written, and written; or 0
  std::uint64_t attempts_ = 0, bytes_ = 0;
  base::TimePoint since_{};
  double bandwidth_ = 0;       // bytes per second of the newest checkpoint; 0: none yet
  double copy_bandwidth_ = 0;  // bytes per second of the newest copy; 0: none yet
  std::optional<base::TimePoint> deadline_;
  LastSave last_;
  bool stopped_ = false;   // nothing more is written before the deadline
  bool unusable_ = false;  // the local directory could not be prepared: nothing is ever written
  bool acknowledged_ = false;
  std::string error_, copy_error_, copy_step_;
  proto::Step failed_ = 0;   // step of the newest save that could not be written
  std::string failure_;      // why it could not
  std::string cut_off_;      // why a writing process was killed
  bool copy_again_ = false;  // another checkpoint was committed during the copy
  base::TimePoint copying_since_{};
  std::function<void()> then_;
};

}  // namespace regroup::writer
