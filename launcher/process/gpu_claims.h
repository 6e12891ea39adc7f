// Claims of GPUs on this host, so that two jobs do not share one unknowingly. A claim is the name
// of an abstract Unix socket (unix(7)), which the kernel releases with the process however it ends.
// Claims are visible to all users of a network namespace.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "launcher/process/environment.h"

namespace regroup::process {

// The claims that count, and the job for which they do.
struct ClaimScope {
  std::string name;   // only claims with this scope name count; "none": none are seen or made
  std::string job;    // claims of this job are not conflicts
  std::string outer;  // nor are claims of the job that this process is a member of
};
// Reads REGROUP_GPU_CLAIMS and REGROUP_JOB of `environment`; what the controller of the job has
// `told` takes precedence.
[[nodiscard]] ClaimScope claim_scope(const spec::Environment& environment, const std::string& job,
                                     const ClaimScope& told = {});

struct GpuOwner {
  std::string job;              // "": unknown
  pid_t pid = 0;                // in its pid namespace
  std::uint64_t processes = 0;  // inode of that namespace (pid_namespaces(7)); 0: unknown
  // As text: "job 0a1b2c3d (process 4711)".
  [[nodiscard]] std::string text() const;
};

// The claims of other jobs, by GPU name (UUID or another unique name). A GPU of an enclosing job is
// free for the jobs within it, once.
class ClaimedGpus {
 public:
  explicit ClaimedGpus(const ClaimScope& scope, const std::string& root = "");
  // nullptr: the GPU is not claimed.
  [[nodiscard]] const GpuOwner* owner(const std::string& gpu) const;

 private:
  friend class GpuClaims;
  [[nodiscard]] std::string own_name(const std::string& gpu) const;
  [[nodiscard]] bool encloses(const GpuOwner& owner) const;

  ClaimScope scope_;
  std::string root_;
  std::map<std::string, GpuOwner> owners_;
};

// The claims of one job on this host; released with this object or its process.
class GpuClaims {
 public:
  // Claims one GPU. kUnavailable: another job has it, which the message names. Claiming a GPU again
  // has no effect.
  [[nodiscard]] base::Status claim(const ClaimScope& scope, const std::string& gpu);
  // Claims all of these GPUs, or none of them.
  [[nodiscard]] base::Status claim_all(const ClaimScope& scope,
                                       const std::vector<std::string>& gpus);

 private:
  struct Held {
    // The claim, and a second socket whose name has the owner.
    base::Fd name;
    base::Fd owner;
  };
  std::map<std::string, Held> held_;
};

}  // namespace regroup::process
