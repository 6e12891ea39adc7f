// Enforces the Limits of members: by control groups or, where none can be made, by rlimits and
// affinity.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "launcher/process/job_cgroup.h"
#include "launcher/process/job_record.h"
#include "launcher/spec/request.h"
#include "proto/world.h"

namespace regroup::process {

// Settings for the start of a member's process.
struct Restraint {
  std::vector<base::Fd> cgroup_procs;  // cgroup.procs files: write "0" to each in the new process
  std::uint64_t data_bytes = 0;        // RLIMIT_DATA; 0: none
  std::vector<int> cores;              // affinity; empty: any
  std::string said;                    // once per job: why control groups are not used; else ""
};

class Limiter {
 public:
  // `record`, which may be nullptr, records groups before they are used. `root`: as for
  // own_cgroups().
  Limiter(std::string job, std::shared_ptr<JobRecord> record, std::string root = "")
      : job_(std::move(job)), record_(std::move(record)), root_(std::move(root)) {}

  // Groups are created if a member of the job has limits; then every member gets one.
  [[nodiscard]] Restraint restrain(proto::MemberId member, const spec::Limits& limits);
  // Call when a member has ended: its limit in bytes if the kernel killed one of its processes for
  // it, else 0.
  std::uint64_t exceeded_memory(proto::MemberId member);
  // The member's control groups; empty: it has none of its own.
  [[nodiscard]] std::vector<std::string> folders_of(proto::MemberId member) const {
    return groups_ ? groups_->folders_of(member) : std::vector<std::string>();
  }

 private:
  [[nodiscard]] base::Status enter(proto::MemberId member, const spec::Limits& limits,
                                   Restraint& restraint);
  void fall_back(const spec::Limits& limits, Restraint& restraint);

  std::string job_;
  std::shared_ptr<JobRecord> record_;
  std::string root_;
  std::optional<JobCgroup> groups_;
  bool refused_ = false;  // control groups cannot be made
  std::map<proto::MemberId, std::uint64_t> memory_;
  std::size_t next_core_ = 0;
};

}  // namespace regroup::process
