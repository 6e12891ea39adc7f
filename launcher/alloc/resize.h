// The commands with which a job grows, shrinks or cancels its allocation, as the manual of each
// allocator has them. Pure functions: nothing is executed here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/alloc/reading.h"

namespace regroup::alloc {

// A command of the allocator. It gets the environment of the job without the variables that begin
// with `without`.
struct AllocatorRequest {
  std::vector<std::string> words;
  std::string without = {};
  std::string script = {};  // contents to write to the file Growth::script first
  bool operator==(const AllocatorRequest&) const = default;
};

// What a job requests, and where granted hosts join it.
struct Growth {
  std::uint32_t slots = 1;
  std::vector<std::string> has;  // hosts of the job
  std::string head;              // the one of them where granted hosts join
  std::string program, socket;   // of regroup, and the job's socket there: words for a shell
  std::string script;            // a file that may be written, for an allocator that starts one
};
[[nodiscard]] AllocatorRequest slurm_grow(const AllocInput& input, const Growth& growth);
[[nodiscard]] AllocatorRequest lsf_grow(const AllocInput& input, const Growth& growth);

// Cancels a request that is still pending. `request`: what the command of the request printed.
[[nodiscard]] AllocatorRequest slurm_cancel(const AllocInput& input, const std::string& request);
[[nodiscard]] AllocatorRequest lsf_cancel(const AllocInput& input, const std::string& request);
// Prints the ids of pending requests, one per line.
[[nodiscard]] AllocatorRequest slurm_requests(const AllocInput& input);

// Releases `host`, on which no process of the job runs any more; `rest`: the hosts that the job
// keeps.
[[nodiscard]] AllocatorRequest slurm_give_back(const AllocInput& input, const Host& host,
                                               const std::vector<Host>& rest);
[[nodiscard]] AllocatorRequest lsf_give_back(const AllocInput& input, const Host& host,
                                             const std::vector<Host>& rest);

// What LSF passes to the notification command of a resize.
struct ResizeEvent {
  bool grow = false;
  std::vector<Host> hosts;     // slots that were added, or that are to be released
  int taken = 0, refused = 1;  // exit statuses of the notification command
};
// kInvalidArgument: a variable is malformed, named; kUnavailable: this is no notification command
// of LSF.
[[nodiscard]] base::Result<ResizeEvent> read_resize_event(const AllocInput& input);

}  // namespace regroup::alloc
