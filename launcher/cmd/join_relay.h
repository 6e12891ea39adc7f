// The way of `regroup join` to a job whose socket it does not see: the standard streams of a command that
// runs `regroup join --relay` where the job is.
#pragma once

#include <string>
#include <vector>

#include "core/fd.h"
#include "core/status.h"
#include "launcher/options/request.h"

namespace regroup::cmd {

// A socket whose other end are standard input and output of `command`, which is killed with this thread.
// kNotFound: there is no such program.
[[nodiscard]] core::Result<core::Fd> connect_through(const std::vector<std::string>& command,
                                                     const launcher::Environment& environment);

// Passes bytes between the socket at `path` and the standard streams until one side has ended: the exit
// status. For a process whose signals are blocked: who asks for the hosts back needs it to the last.
[[nodiscard]] int run_relay(const std::string& path);

}  // namespace regroup::cmd
