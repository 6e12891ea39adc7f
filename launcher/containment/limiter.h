// Holds members to their Limits: by control groups or, where there are none to be had, by what a process can
// be told itself.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/fd.h"
#include "core/world.h"
#include "launcher/containment/job_cgroup.h"
#include "launcher/containment/job_record.h"
#include "launcher/options/request.h"

namespace regroup::launcher {

// What the start of a member's process needs for that.
struct Restraint {
  std::vector<core::Fd> doors;   // of control groups: write "0" to each in the new process
  std::uint64_t data_bytes = 0;  // RLIMIT_DATA; 0: none
  std::vector<int> cores;        // to run on; empty: any
  std::string said;              // once per job: why control groups do not do it; "" else
};

class Limiter {
 public:
  // `record`, which may be none, gets to know of groups before they are used. `root`: as own_cgroups().
  Limiter(std::string job, std::shared_ptr<JobRecord> record, std::string root = "")
      : job_(std::move(job)), record_(std::move(record)), root_(std::move(root)) {}

  // Groups are made for a job of which some member has limits; then every member gets one.
  [[nodiscard]] Restraint restrain(core::MemberId member, const Limits& limits);
  // To be called when a member is dead: the limit in bytes, if the kernel killed one of its processes for it,
  // else 0.
  std::uint64_t exceeded_memory(core::MemberId member);
  // Of its control groups; empty: it has none of its own.
  [[nodiscard]] std::vector<std::string> folders_of(core::MemberId member) const {
    return groups_ ? groups_->folders_of(member) : std::vector<std::string>();
  }

 private:
  [[nodiscard]] core::Status enter(core::MemberId member, const Limits& limits, Restraint& restraint);
  void fall_back(const Limits& limits, Restraint& restraint);

  std::string job_;
  std::shared_ptr<JobRecord> record_;
  std::string root_;
  std::optional<JobCgroup> groups_;
  bool refused_ = false;  // there are no control groups to be had
  std::map<core::MemberId, std::uint64_t> memory_;
  std::size_t next_core_ = 0;
};

}  // namespace regroup::launcher
