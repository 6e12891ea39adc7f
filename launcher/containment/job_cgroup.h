// The control groups of a job: one for the job in each hierarchy it needs, and in them one per member.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/fd.h"
#include "core/status.h"
#include "core/world.h"
#include "launcher/options/request.h"

namespace regroup::launcher {

// What a group must be able to hold its members to.
struct CgroupNeeds {
  bool cpu = false, memory = false;
};

class JobCgroup {
 public:
  // Makes the groups regroup-JOB, in this process's own groups or, under version 2, in the nearest group
  // above that hands on the controllers. Failure names what could not be made, and nothing is left of it.
  // `root`: as own_cgroups().
  [[nodiscard]] static core::Result<JobCgroup> make(const std::string& job, CgroupNeeds needs,
                                                    const std::string& root = "");
  // Makes the member's groups with its limits. A process enters one by writing "0" to its door.
  [[nodiscard]] core::Result<std::vector<core::Fd>> add(core::MemberId member, const Limits& limits) const;
  // How many processes of the member's groups the kernel has killed for want of memory.
  [[nodiscard]] std::uint64_t memory_kills(core::MemberId member) const;
  // Those of the member, one per hierarchy.
  [[nodiscard]] std::vector<std::string> folders_of(core::MemberId member) const;
  // Takes the member's groups away, unless something still runs in them.
  void remove(core::MemberId member) const;
  // Of the job, one per hierarchy.
  [[nodiscard]] const std::vector<std::string>& folders() const { return folders_; }

 private:
  [[nodiscard]] core::Status make_groups(const std::string& job, CgroupNeeds needs, const std::string& root);

  std::vector<std::string> folders_;
};

// SIGKILLs all processes of a job's groups and those below, and removes the groups. Blocks until `limit` has
// passed at most; false: some is still there. Groups that do not exist count as removed.
bool end_cgroups(const std::vector<std::string>& folders, core::Duration limit);

}  // namespace regroup::launcher
