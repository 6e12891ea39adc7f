// Checkpoints of an elastic job: finds the one to resume from, and has the members' snapshots
// written by regroup-persist, which alone uses HDF5.
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
#include "checkpoint/writer/last_snapshot.h"
#include "launcher/process/piped_process.h"
#include "launcher/process/run_in_subprocess.h"
#include "launcher/spec/checkpoint_plan.h"
#include "shmem/arena.h"
#include "shmem/save_mark.h"

namespace regroup::writer {

inline constexpr std::chrono::seconds kDiskLimit{
    600};  // when the job ends, of one on which nothing moves

// In the agent: waits for snapshots in the arena and has them written. Used by the loop's thread.
class Checkpoints {
 public:
  using Say = std::function<void(const std::string&)>;
  // `arena` gives the agent's, which may not be mapped yet. `host`: name of this one in a job on
  // several, of which another one says what the job goes on from; else empty.
  Checkpoints(boost::asio::io_context& loop, CheckpointPlan plan, std::string host,
              std::function<const shmem::Arena&()> arena, Say say, bool quiet);
  ~Checkpoints();
  void start();
  // The agent's arena may have been made, or another one.
  void look_for_arena();
  // This host goes at `deadline`: decides whether the checkpoint that is being written, or another
  // snapshot, can be finished by then, and reports the decision with its reason. Nothing is written
  // after the deadline. An earlier deadline replaces it.
  void on_notice(base::TimePoint deadline);
  // The job has failed and its members are about to be killed: calls `then` once a member that
  // waits for others has saved its state, or none claims to.
  void save_now(std::function<void()> then);
  // A member of this host ended; it may have claimed the last snapshot.
  void on_member_ended() { last_.on_member_ended(); }
  // Until the deadline, while something is being written; else zero.
  [[nodiscard]] base::Duration still_needs() const;
  // "the newest checkpoint is that of step 20 in DIR", as far as this host knows, and which is
  // being written; empty: the job keeps none.
  [[nodiscard]] std::string newest() const {
    return newest_of(plan_, committed_, process_ ? writing_ : 0, !host_.empty());
  }
  // Calls `then` once nothing is being written any more and no snapshot waits.
  void finish(std::function<void()> then);
  // Then: which checkpoint finish() of the members counted on, and why it is not there; "": all
  // are.
  [[nodiscard]] std::string unsaved() const;

 private:
  void check_directory();
  void take_own();
  void take_again();
  void not_ours_yet(const std::string& why);
  void check(std::vector<std::string> argv);
  void checked(int wait_status);
  void taken(bool held);
  void drop_check();
  [[nodiscard]] bool release_own();
  void end_by(base::TimePoint deadline);
  [[nodiscard]] FinalCheckpointDecision choose() const;
  void ask_after_writing();
  void poll();
  void write(proto::Step step);
  void copy();
  void copied(int wait_status);
  void written(int wait_status);
  [[nodiscard]] base::Result<std::string> description(proto::Step step) const;
  void failed(proto::Step step, const std::string& why);
  void free_area(proto::Step step);
  void moved();

  const CheckpointPlan plan_;
  const std::string host_;
  const std::function<const shmem::Arena&()> arena_;
  const Say say_;
  const bool quiet_;
  boost::asio::io_context& loop_;
  boost::asio::steady_timer limit_;  // of what is still being written when the job is over
  boost::asio::steady_timer late_;  // for this host's own directory to answer, or to be tried again
  std::unique_ptr<CheckpointWatcher> watcher_;
  int watched_ = -1;  // descriptor of the arena
  std::shared_ptr<process::PipedProcess> process_, check_, copy_;
  bool taking_ = false;  // check_ takes this host's own directory and prepares it ...
  // ... and has not succeeded for the reason not_yet_; finish() does not wait for it.
  bool hangs_ = false;
  bool held_ = false;       // check_ has its lock ...
  bool releasing_ = false;  // ... and gives it back, since the job is over
  std::string check_error_, not_yet_;
  proto::Step writing_ = 0, committed_ = 0;  // committed_: the newest of this job, 0: none yet
  std::uint64_t attempts_ = 0, bytes_ = 0;
  base::TimePoint since_{};
  double bandwidth_ = 0;       // bytes per second, of the newest that was written ...
  double copy_bandwidth_ = 0;  // ... and of the newest copy
  std::optional<base::TimePoint> deadline_;
  LastSnapshot last_;
  bool keep_ = false;    // nothing more is written
  bool barred_ = false;  // nor ever: this host's own directory could not be prepared
  bool acknowledged_ = false;
  std::string error_, copy_error_, copy_step_;
  proto::Step failed_ = 0;   // step of the newest snapshot that was not written ...
  std::string failure_;      // ... and why
  std::string cut_off_;      // why a process that writes was killed
  bool copy_again_ = false;  // one more has been committed meanwhile
  base::TimePoint copying_since_{};
  std::function<void()> then_;
};

}  // namespace regroup::writer
