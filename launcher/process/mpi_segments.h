// Shared memory of Open MPI that killed ranks have left in /dev/shm. libpmix removes it when a rank
// ends, whatever way, but not when it is killed at the same time. MPICH unlinks its own at once.
#pragma once

#include <sys/types.h>

#include <ctime>
#include <string>
#include <string_view>
#include <vector>

namespace regroup::process {

// Whether Open MPI 4 (vader_segment.HOST.UID.JOBID.RANK) or 5 (sm_segment...) gives this name to a
// segment of a rank of launch `job` ("0123abcd"); JOBID is a hash of the rank's PMIx namespace,
// regroup-JOB.SPACE.
[[nodiscard]] bool is_mpi_segment_of(std::string_view name, const std::string& job,
                                     const std::string& host, uid_t user);

// Removes the segments of `job` in `folder`: files of this user that are as new as `since`, and
// that no process maps or has opened. Returns their names. Call it once the job's processes have
// ended. Blocks for some microseconds; longer, to look at all processes, if there are any.
std::vector<std::string> remove_mpi_segments(const std::string& job, timespec since,
                                             const std::string& folder = "/dev/shm");

}  // namespace regroup::process
