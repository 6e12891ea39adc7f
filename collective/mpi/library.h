// Finds the user's MPI. Loads nothing: the carrier process does (tools/mpi).
#pragma once

#include <string>

#include "base/status.h"

namespace regroup::collective::mpi {

// The path of the library of the MPI in `place`: a directory where it is installed, or the
// library's file itself. If `place` is empty, that of the first mpirun in `path` (directories, as
// in PATH). Knows Open MPI (libmpi.so.40), the standard's ABI
// (libmpi_abi.so.1) and MPICH (libmpi.so.12, libmpich.so.12). kUnavailable:
// the reason, as a part of a sentence. Blocks for a few system calls.
[[nodiscard]] base::Result<std::string> find_library(const std::string& place,
                                                     const std::string& path);

}  // namespace regroup::collective::mpi
