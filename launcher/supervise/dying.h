// Processes on their way out, as /proc shows them.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace regroup::launcher {

// The process runs no more: it is being torn down, or waits to be reaped.
[[nodiscard]] bool is_exiting(pid_t pid);

// In what function of the kernel a process hangs that was killed and does not end, as on a file whose server
// is gone; "" where the kernel does not say; nothing: it has ended, may yet run, or was not killed. Such a
// process never runs its program again, so its last store is behind it: docs/design/stuck_members.md.
[[nodiscard]] std::optional<std::string> stuck_in(pid_t pid);
// "hangs in the kernel (request_wait_answer)", for a message.
[[nodiscard]] std::string hangs_in(const std::string& where);

// The threads of a process but the first, as "name (function of the kernel in which it sleeps)"; at most
// `most`, and then "N more". Empty: it has no others, or is gone.
[[nodiscard]] std::vector<std::string> threads_besides_first(pid_t pid, std::size_t most = 8);

}  // namespace regroup::launcher
