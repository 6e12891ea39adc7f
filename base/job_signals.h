// The signals that allocators send to a job's processes.
#pragma once

#include <csignal>

namespace regroup::base {

// For a helper process that the job's other processes still need when an allocator ends the job by
// a signal to each of them: the launcher or the agent says when it ends.
inline void ignore_signals_of_jobs() {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) std::signal(signal, SIG_IGN);
}

}  // namespace regroup::base
