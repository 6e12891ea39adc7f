// The control groups of a job: one for the job in each hierarchy that it needs, and below it one
// per member.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "launcher/spec/request.h"
#include "proto/world.h"

namespace regroup::process {

// The limits that the groups must enforce.
struct CgroupNeeds {
  bool cpu = false;
  bool memory = false;
};

class JobCgroup {
 public:
  // Creates the groups regroup-JOB in this process's own groups or, with cgroup v2, in the nearest
  // ancestor that delegates the controllers. An error names what could not be created; nothing is
  // left behind. `root`: as for own_cgroups().
  [[nodiscard]] static base::Result<JobCgroup> make(const std::string& job, CgroupNeeds needs,
                                                    const std::string& root = "");
  // Creates the member's groups with its limits. A process enters a group by writing "0" to its
  // cgroup.procs.
  [[nodiscard]] base::Result<std::vector<base::Fd>> add(proto::MemberId member,
                                                        const spec::Limits& limits) const;
  // The number of the member's processes that the OOM killer has killed.
  [[nodiscard]] std::uint64_t memory_kills(proto::MemberId member) const;
  // The member's groups, one per hierarchy.
  [[nodiscard]] std::vector<std::string> folders_of(proto::MemberId member) const;
  // Removes the member's groups, unless a process still runs in them.
  void remove(proto::MemberId member) const;
  // The job's groups, one per hierarchy.
  [[nodiscard]] const std::vector<std::string>& folders() const { return folders_; }

 private:
  [[nodiscard]] base::Status make_groups(const std::string& job, CgroupNeeds needs,
                                         const std::string& root);

  std::vector<std::string> folders_;
};

// SIGKILLs all processes in the job's groups and below, and removes the groups. Blocks for `limit`
// at most; false: some are left. Missing groups count as removed.
bool end_cgroups(const std::vector<std::string>& folders, base::Duration limit);

}  // namespace regroup::process
