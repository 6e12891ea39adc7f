// What lies between the launcher and a standard stream of a member.
#pragma once

#include "core/fd.h"
#include "core/status.h"

namespace regroup::launcher {

struct Pipe {
  core::Fd read, write;
};

// Our end is non-blocking, the member's is not.
[[nodiscard]] core::Result<Pipe> make_pipe(bool ours_is_read);

// A pseudo-terminal to write to, so that the member's C library writes each line when it ends. As Open MPI
// makes it: bytes pass unchanged, nothing is echoed, and it is as large as the terminal `like` is now.
// The reading end gives EIO, where a pipe gives its end, once nobody has the writing end any more.
[[nodiscard]] core::Result<Pipe> make_terminal(int like);

// Nothing to read, and no writing end.
[[nodiscard]] core::Result<Pipe> empty_input();

}  // namespace regroup::launcher
