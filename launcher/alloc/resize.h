// How an allocation changes at the wish of its job: commands of the allocator, as its manual has them. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/status.h"
#include "launcher/alloc/reading.h"

namespace regroup::launcher {

// A command for the allocator: in the environment of the job, but for what begins with `without`.
struct Ask {
  std::vector<std::string> words;
  std::string without = {};
  std::string script = {};  // to be written to Growth::script before
  bool operator==(const Ask&) const = default;
};

// What a job wants more, and where it takes what comes.
struct Growth {
  std::uint32_t slots = 1;
  std::vector<std::string> has;  // hosts that it has
  std::string head;              // of them, the one where the job takes hosts
  std::string program, socket;   // of regroup, and the job's socket there: words for a shell
  std::string script;            // a file that may be written, for an allocator that starts one
};
[[nodiscard]] Ask slurm_grow(const AllocInput& input, const Growth& growth);
[[nodiscard]] Ask lsf_grow(const AllocInput& input, const Growth& growth);

// What was asked for is not wanted any more, as long as it waits. `request`: what the asking printed.
[[nodiscard]] Ask slurm_cancel(const AllocInput& input, const std::string& request);
[[nodiscard]] Ask lsf_cancel(const AllocInput& input, const std::string& request);
// Prints, a line each, the requests that may still bring something.
[[nodiscard]] Ask slurm_requests(const AllocInput& input);

// Nothing of the job is on `host` any more; `rest` is what it keeps of its allocation.
[[nodiscard]] Ask slurm_give_back(const AllocInput& input, const Host& host, const std::vector<Host>& rest);
[[nodiscard]] Ask lsf_give_back(const AllocInput& input, const Host& host, const std::vector<Host>& rest);

// What LSF tells its notification command.
struct ResizeEvent {
  bool grow = false;
  std::vector<Host> hosts;     // slots that have come, or are to go
  int taken = 0, refused = 1;  // exit statuses of that command
};
// kInvalidArgument names the variable; kUnavailable: LSF has not started this process for that.
[[nodiscard]] core::Result<ResizeEvent> read_resize_event(const AllocInput& input);

}  // namespace regroup::launcher
