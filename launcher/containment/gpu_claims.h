// Which GPUs of this host jobs have been given, so that two of them do not take the same one without a word:
// names of sockets that the kernel keeps for a process (unix(7), abstract), and forgets with it, however it
// ends. They are seen by all users of one network namespace.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/fd.h"
#include "core/status.h"
#include "launcher/supervise/environment.h"

namespace regroup::launcher {

// Whose claims count, and for whom.
struct ClaimScope {
  std::string name;   // only claims of the same name are seen; "none": none are seen or made
  std::string job;    // claims of this job are none of others
  std::string outer;  // nor are those of the job that this process is a member of
};
// REGROUP_GPU_CLAIMS and REGROUP_JOB of `environment`; what the controller of the job has `told` of its own
// counts before them.
[[nodiscard]] ClaimScope claim_scope(const Environment& environment, const std::string& job,
                                     const ClaimScope& told = {});

struct GpuOwner {
  std::string job;              // "": not known
  pid_t pid = 0;                // in the namespace of processes that ...
  std::uint64_t processes = 0;  // ... has this number (pid_namespaces(7)); 0: not known
  // "job 0a1b2c3d (process 4711)".
  [[nodiscard]] std::string text() const;
};

// By the GPU's name (uuid, or what else tells it from others): those that other jobs have. What an enclosing
// job has is free for those that it runs, once.
class ClaimedGpus {
 public:
  explicit ClaimedGpus(const ClaimScope& scope, const std::string& root = "");
  // nullptr: nobody.
  [[nodiscard]] const GpuOwner* owner(const std::string& gpu) const;

 private:
  friend class GpuClaims;
  [[nodiscard]] std::string own_name(const std::string& gpu) const;
  [[nodiscard]] bool encloses(const GpuOwner& owner) const;

  ClaimScope scope_;
  std::string root_;
  std::map<std::string, GpuOwner> owners_;
};

// Of one job on this host; released with this object, or its process.
class GpuClaims {
 public:
  // kUnavailable: another job has it, which the message names. A GPU that is claimed already stays so.
  [[nodiscard]] core::Status claim(const ClaimScope& scope, const std::string& gpu);
  // Of these, all or none more than before.
  [[nodiscard]] core::Status claim_all(const ClaimScope& scope, const std::vector<std::string>& gpus);

 private:
  struct Held {
    core::Fd name, owner;  // the claim itself, and a second one that tells whose it is
  };
  std::map<std::string, Held> held_;
};

}  // namespace regroup::launcher
