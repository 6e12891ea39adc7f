// The record file that proves whether a job lives: guardian, reaper and agent hold its lock. If the
// lock is free all three are dead, and the process that gets it may kill what they left. Format:
// docs/reference/formats/job-record.md.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"

namespace regroup::process {

class JobRecord {
 public:
  // Creates FOLDER/JOB.job and locks it for this process and those that it forks (not those that it
  // executes).
  [[nodiscard]] static base::Result<std::shared_ptr<JobRecord>> create(const std::string& folder,
                                                                       const std::string& job);
  // Takes the record of a job of this user and this boot without a living launcher process; it is
  // then this process's. nullptr: the job may live, or another process cleans it up. The part of an
  // agent for another host is left alone while the job's launcher runs on this one (--launcher
  // fork), which cleans it up.
  [[nodiscard]] static std::shared_ptr<JobRecord> take_over(const std::string& path);

  // Records control groups of the job, to be removed with it. Called before they are created.
  [[nodiscard]] base::Status add_cgroups(const std::vector<std::string>& folders);
  // Records a process of the job that is no descendant of its agent, to be killed with it.
  [[nodiscard]] base::Status add_process(pid_t pid);
  // Kills the processes in the job's control groups and, unless they end by themselves, the
  // recorded processes; removes the groups, the job's folders and agent's socket and, if nothing is
  // left, the record. Blocks for `limit` at most. Any process of the job may call it, repeatedly.
  bool clean(base::Duration limit);

  [[nodiscard]] const std::string& job() const { return job_; }
  [[nodiscard]] const std::string& folder() const { return folder_; }

 private:
  JobRecord(base::Fd file, std::string folder, std::string job)
      : file_(std::move(file)), folder_(std::move(folder)), job_(std::move(job)) {}
  [[nodiscard]] std::string path() const { return folder_ + "/" + job_ + ".job"; }
  [[nodiscard]] std::vector<std::string> lines_of(const std::string& key) const;

  base::Fd file_;
  std::string folder_;
  std::string job_;
};

// The value of REGROUP_JOB in members of `job`, which may be the part of one host: "0123abcd-2" ->
// "0123abcd".
[[nodiscard]] std::string launch_of(const std::string& job);

// The records in `folder`, of dead and living jobs.
[[nodiscard]] std::vector<std::string> job_records(const std::string& folder);

}  // namespace regroup::process
