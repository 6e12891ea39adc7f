// The checkpoint directory of a host of several: checks who owns it, or locks and prepares it, in a
// regroup-persist process, since a file system that hangs must not block the agent.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/writer/directory_stage.h"
#include "launcher/process/piped_process.h"
#include "launcher/spec/checkpoint_plan.h"

namespace regroup::writer {

// Used by the loop's thread, which also calls the events.
class LocalDirectory {
 public:
  struct Events {
    std::function<void(const std::string&)> say;
    std::function<void()> changed;  // the stage may have changed
  };
  // `plan` outlives this object. `host`: this host's name, for messages; `program`: the path of
  // regroup-persist.
  LocalDirectory(boost::asio::io_context& loop, const spec::CheckpointPlan& plan, std::string host,
                 std::string program, Events events);
  ~LocalDirectory();  // kills the process and calls no event
  LocalDirectory(const LocalDirectory&) = delete;
  LocalDirectory& operator=(const LocalDirectory&) = delete;

  // Checks the owner of a directory that all hosts share (the stage stays kOpen): the agent of
  // another host may hold the lock for the same job.
  void check();
  // Starts a process that locks the directory and holds the lock as long as this process lives. It
  // first copies a newer checkpoint from plan.shared.
  void lock();
  // The job is over: a lock that another job holds is not waited for any more.
  void on_end_of_job() { job_is_over_ = true; }
  // Releases the lock, so that the job can be started again at once. False: none is held.
  [[nodiscard]] bool release();
  void abandon();  // kills the process

  [[nodiscard]] DirectoryStage stage() const { return stage_; }
  // Why nothing is written here, in kLate and after it, and in kUnusable.
  [[nodiscard]] const std::string& why_not_locked() const { return why_not_locked_; }

 private:
  void run(std::vector<std::string> words);
  void on_line(std::string_view line, bool error);
  void on_ended(int wait_status);
  void on_settled(DirectoryEvent event);
  void on_delay(const std::string& why);
  void retry();
  void apply(DirectoryEvent event) { stage_ = next_stage(stage_, event); }

  const spec::CheckpointPlan& plan_;
  const std::string host_, program_;
  const Events events_;
  boost::asio::io_context& loop_;
  boost::asio::steady_timer timer_;  // limits or repeats the locking
  std::shared_ptr<process::PipedProcess> process_;
  DirectoryStage stage_ = DirectoryStage::kOpen;
  bool job_is_over_ = false;
  std::string errors_, why_not_locked_;
};

}  // namespace regroup::writer
