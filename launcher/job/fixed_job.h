// How `regroup status` finds a job without a coordinator: by a folder as elastic jobs have, with a
// file that the job keeps locked and the usage file of its agent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/file_lock.h"
#include "base/status.h"
#include "launcher/job/job_files.h"
#include "launcher/spec/request.h"

namespace regroup::job {

// The job exists as long as a process holds a copy of the lock.
struct FixedJob {
  base::FileLock lock;
  HeldJobFiles files;  // removed before the lock is released: nobody finds the folder of a job that
                       // has ended
};

// Creates the folder of job `id` with `members` members, of `roles`, if it has any. None: that
// failed; the job runs without it.
[[nodiscard]] std::optional<FixedJob> announce_job(const spec::Environment& environment,
                                                   const std::string& id, std::uint32_t members,
                                                   const std::vector<spec::Role>& roles = {});

// The status of the job as JSON: {"job", "stage": "running", "fixed": true, "size", "members": the
// living ones, as usage_json(), in a job of roles with "role" and "role_index", and
// "parameter_server" as of parameter_server.h, if there is one}.
// Blocks for its answer, at most 5 s. kNotFound: it has ended.
[[nodiscard]] base::Result<std::string> fixed_job_status(const JobFiles& files);
// Sets the number of servers of the job's parameter server; returns the agent's sentence. Blocks
// for its answer, at most 60 s. kInvalidArgument: the job does not allow it. kNotFound: it has no
// parameter server, or has ended.
[[nodiscard]] base::Result<std::string> resize_servers(const JobFiles& files,
                                                       std::uint32_t servers);
// Has the tables of the job's parameter server saved; returns the agent's sentence once they are on
// the disk. Blocks. kInvalidArgument: the agent's reason why they are not. kNotFound: it has no
// parameter server, or has ended.
[[nodiscard]] base::Result<std::string> save_tables(const JobFiles& files);
// Has a member of a job of roles killed, "3", "worker:1" or "ps:0"; returns the job's sentence.
// Blocks for it, at most 60 s. kNotFound: the job takes no such requests; kInvalidArgument: its
// reason.
[[nodiscard]] base::Result<std::string> kill_member(const JobFiles& files,
                                                    const std::string& member);
// fixed_job_status() for people.
[[nodiscard]] std::string fixed_job_table(const std::string& status);

}  // namespace regroup::job
