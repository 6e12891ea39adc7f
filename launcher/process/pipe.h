// The pipe or pseudo-terminal between the launcher and a standard stream of a member.
#pragma once

#include "base/fd.h"
#include "base/status.h"

namespace regroup::process {

struct Pipe {
  base::Fd read;
  base::Fd write;
};

// The launcher's end is non-blocking, the member's is not.
[[nodiscard]] base::Result<Pipe> make_pipe(bool ours_is_read);

// A pseudo-terminal for output, so that the member's C library is line-buffered. As in Open MPI,
// bytes pass unchanged, nothing is echoed, and its window size is that of the terminal `like`. At
// the end the reading end gives EIO instead of EOF.
[[nodiscard]] base::Result<Pipe> make_terminal(int like);

// An empty input (/dev/null); no writing end.
[[nodiscard]] base::Result<Pipe> empty_input();

}  // namespace regroup::process
