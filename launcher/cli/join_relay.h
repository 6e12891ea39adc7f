// Connects `regroup join` to a job whose socket is on another host: through the standard streams of
// a command that runs `regroup join --relay` there.
#pragma once

#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "launcher/spec/request.h"

namespace regroup::cli {

// A socket whose other end are standard input and output of `command`, which is killed with this
// thread. kNotFound: there is no such program.
[[nodiscard]] base::Result<base::Fd> connect_through(const std::vector<std::string>& command,
                                                     const spec::Environment& environment);

// Copies bytes between the socket at `path` and the standard streams until one side has ended, and
// returns the exit status. The process must block signals: `regroup join` needs the relay until the
// lease has ended.
[[nodiscard]] int run_relay(const std::string& path);

}  // namespace regroup::cli
