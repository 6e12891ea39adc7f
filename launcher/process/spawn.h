// Starts the process of a member. The only user of vfork() and execve().
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/process/memory_policy.h"
#include "launcher/process/priority.h"

namespace regroup::process {

struct SpawnSpec {
  std::string path;  // of the program; relative to wdir
  std::vector<std::string> argv;
  std::vector<std::string> environment;  // "NAME=value"
  std::string wdir;                      // "": the current folder
  // Become 0, 1, 2; owned by the caller.
  int in = -1;
  int out = -1;
  int err = -1;
  Priority priority;
  int inherited = -1;            // becomes kInheritedFd (app.h); -1: none
  std::vector<int> cores;        // affinity; empty: as the caller
  MemoryOrder memory;            // its memory policy
  std::vector<int> groups;       // cgroup.procs of control groups to enter
  std::uint64_t data_bytes = 0;  // RLIMIT_DATA; 0: as the caller
  std::uint64_t open_files = 0;  // soft RLIMIT_NOFILE; 0: as the caller
  std::vector<int> kept;         // keep their numbers, which ascend and are above kInheritedFd
};

// Starts a process in a process group of its own, with default signal dispositions, no blocked
// signals and no other descriptors; the kernel kills it when the calling thread ends. Blocks until
// execve() has happened. An error names the failed call and the program. The caller reaps the
// process.
[[nodiscard]] base::Result<pid_t> spawn(const SpawnSpec& spec);

}  // namespace regroup::process
