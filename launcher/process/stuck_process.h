// Exiting and stuck processes, read from /proc: a process that is being torn down, and one that was
// killed and hangs in the kernel.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace regroup::process {

// The process does not run its program any more: the kernel tears it down, or it is a zombie.
[[nodiscard]] bool is_exiting(pid_t pid);

// The kernel function in which a killed process hangs (uninterruptible sleep on a dead NFS server,
// for example);
// "" where the kernel does not tell. nullopt: the process has ended, may run again, or was not
// killed. A stuck process never runs its program again, so it stores nothing more:
// docs/design/stuck_members.md.
[[nodiscard]] std::optional<std::string> stuck_in(pid_t pid);
// "hangs in the kernel (request_wait_answer)", for a message.
[[nodiscard]] std::string hangs_in(const std::string& where);

// All threads of a process but the main one, as "name (kernel function in which it sleeps)"; at
// most `most`, then "N more". Empty: there are none, or the process is gone.
[[nodiscard]] std::vector<std::string> threads_besides_first(pid_t pid, std::size_t most = 8);

}  // namespace regroup::process
