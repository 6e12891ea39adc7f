// The file that proves whether a job lives: guardian, reaper and agent hold its lock, so once it is free all
// three are dead, and whoever finds it may end what they left. docs/formats/job-record.md says what is in it.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/fd.h"
#include "core/status.h"

namespace regroup::launcher {

class JobRecord {
 public:
  // Makes FOLDER/JOB.job and locks it for this process and those that it forks (not those that it executes).
  [[nodiscard]] static core::Result<std::shared_ptr<JobRecord>> create(const std::string& folder,
                                                                       const std::string& job);
  // The record of a job of this user and this boot of the machine of which no launcher process lives; from
  // now on it is ours. nullptr: the job may live, or somebody else ends it. The part of an agent for another
  // host is left alone while the job's launcher lives on this one (--launcher fork), which sees to it.
  [[nodiscard]] static std::shared_ptr<JobRecord> take_over(const std::string& path);

  // Control groups of the job, to be removed with it. Written down before they are made.
  [[nodiscard]] core::Status add_cgroups(const std::vector<std::string>& folders);
  // A process of the job that is no descendant of its agent, to be ended with it.
  [[nodiscard]] core::Status add_process(pid_t pid);
  // Kills what is in the job's control groups and, unless they end by themselves, the processes that were
  // added; removes the groups, the job's folders and agent's socket and, if nothing is left, the record.
  // Blocks until `limit` has passed at most. Any of the job's processes may call it, more than once.
  bool clean(core::Duration limit);

  [[nodiscard]] const std::string& job() const { return job_; }
  [[nodiscard]] const std::string& folder() const { return folder_; }

 private:
  JobRecord(core::Fd file, std::string folder, std::string job)
      : file_(std::move(file)), folder_(std::move(folder)), job_(std::move(job)) {}
  [[nodiscard]] std::string path() const { return folder_ + "/" + job_ + ".job"; }
  [[nodiscard]] std::vector<std::string> lines_of(const std::string& key) const;

  core::Fd file_;
  std::string folder_;
  std::string job_;
};

// What REGROUP_JOB says in members of `job`, which may be the part of one host: "0123abcd-2" -> "0123abcd".
[[nodiscard]] std::string launch_of(const std::string& job);

// The records in `folder`, of dead jobs and of living ones.
[[nodiscard]] std::vector<std::string> job_records(const std::string& folder);

}  // namespace regroup::launcher
