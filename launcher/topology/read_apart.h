// Input from outside is read in a process of its own: what it does to a library that cannot digest
// it is then an error of that input, not the end of the launcher or of an agent.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"

namespace regroup::topology {

// Long enough for any file within the bounds of text_input.h on a machine that is busy.
inline constexpr base::Duration kReadLimit = std::chrono::seconds(20);

// What `read` returns in a child of this process, 64 MiB at most; its standard output goes nowhere,
// and it leaves no core file. `source` begins each error: a file, or "HWLOC_XMLFILE=..."; `reader`
// names what reads it. kInvalidArgument: the reader was killed by a signal, or ended without an
// answer, both of which the message says. kDeadlineExceeded: no answer within `limit`; the child is
// killed, and left behind if it hangs in the kernel. `read` may only use what this thread can see:
// other threads do not exist in the child.
[[nodiscard]] base::Result<std::string> read_apart(
    const std::string& source, std::string_view reader,
    const std::function<base::Result<std::string>()>& read, base::Duration limit = kReadLimit);

}  // namespace regroup::topology
