// A job without a coordinator, as `regroup status` finds it: a folder as elastic jobs have, with a file that
// the job keeps locked and what its agent writes of its members.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/file_lock.h"
#include "core/status.h"
#include "launcher/cmd/job_files.h"

namespace regroup::cmd {

// As long as a process has a copy of the lock, the job is there.
struct FixedJob {
  JobFiles files;
  core::FileLock lock;
};

// Makes the folder of job `id` of so many members. None: there is no place for it; the job does without.
[[nodiscard]] std::optional<FixedJob> announce_job(const launcher::Environment& environment,
                                                   const std::string& id, std::uint32_t members);

// What `regroup status` tells of it, as JSON: {"job", "stage": "running", "fixed": true, "size", "members":
// those that live, as usage_json()}. kNotFound: it has ended.
[[nodiscard]] core::Result<std::string> fixed_job_status(const JobFiles& files);
// The same for people.
[[nodiscard]] std::string fixed_job_table(const std::string& status);

}  // namespace regroup::cmd
