// The commands with which a job grows or shrinks its allocation, according to the manual of each
// allocator. Pure functions: nothing is executed here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/alloc/reading.h"

namespace regroup::alloc {

// A command of the allocator, to be run with the job's environment except for variables that begin
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
  std::vector<std::string> has;  // the job's hosts
  std::string head;              // the one of them that granted hosts connect to
  // regroup and the job's socket on `head`, as words for a shell.
  std::string program;
  std::string socket;
  std::string script;  // path for a script, if the allocator starts one
};
[[nodiscard]] AllocatorRequest slurm_grow(const AllocInput& input, const Growth& growth);
[[nodiscard]] AllocatorRequest lsf_grow(const AllocInput& input, const Growth& growth);

// Cancels a pending request. `request`: the output of the command that made the request.
[[nodiscard]] AllocatorRequest slurm_cancel(const AllocInput& input, const std::string& request);
[[nodiscard]] AllocatorRequest lsf_cancel(const AllocInput& input, const std::string& request);
// Prints the ids of pending requests, one per line.
[[nodiscard]] AllocatorRequest slurm_requests(const AllocInput& input);

// Releases `host`, on which no process of the job runs any more. `rest`: the hosts that the job
// keeps.
[[nodiscard]] AllocatorRequest slurm_give_back(const AllocInput& input, const Host& host,
                                               const std::vector<Host>& rest);
[[nodiscard]] AllocatorRequest lsf_give_back(const AllocInput& input, const Host& host,
                                             const std::vector<Host>& rest);

// LSF's parameters for the notification command of a resize.
struct ResizeEvent {
  bool grow = false;
  std::vector<Host> hosts;  // the slots that were added, or that the job must release
  // Exit statuses with which the command accepts or refuses.
  int taken = 0;
  int refused = 1;
};
// kInvalidArgument names a malformed variable. kUnavailable: LSF has not started this process as a
// notification command.
[[nodiscard]] base::Result<ResizeEvent> read_resize_event(const AllocInput& input);

}  // namespace regroup::alloc
