// Reads untrusted input in a separate process: if a library crashes or hangs on it, the result is
// an error, and the launcher or agent goes on.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"

namespace regroup::topology {

// Long enough for any file within the bounds of text_input.h on a busy machine.
inline constexpr base::Duration kReadLimit = std::chrono::seconds(20);

// Calls `read` in a forked child and returns its result, at most 64 MiB. The child's standard
// output is discarded, and it leaves no core file. `source` (a file, or "HWLOC_XMLFILE=...") begins
// each error; `reader` names the library. kInvalidArgument: a signal killed the child, or it ended
// without a result; the message says which. kDeadlineExceeded: no result within `limit`; the child
// is killed, or abandoned if it hangs in the kernel. `read` must not depend on other threads, which
// do not exist in the child.
[[nodiscard]] base::Result<std::string> read_in_child(
    const std::string& source, std::string_view reader,
    const std::function<base::Result<std::string>()>& read, base::Duration limit = kReadLimit);

}  // namespace regroup::topology
