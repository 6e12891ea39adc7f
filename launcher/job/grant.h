// The allocators that the environment of this process names, and what they have granted.
#pragma once

#include "base/status.h"
#include "launcher/alloc/reading.h"
#include "launcher/spec/job_spec.h"

namespace regroup::job {

// Where allocators are looked for: the environment and the files of this machine. `environment`
// outlives it.
[[nodiscard]] alloc::AllocInput allocation_input(const spec::Environment& environment);
// What the allocator of that name ("": any) has granted; nothing, and no error, if there is none.
[[nodiscard]] base::Result<spec::Grant> grant_of(const spec::Environment& environment,
                                                 const std::string& allocator);
// Marks this host, where no host has the name by which its allocator calls it.
void mark_own(alloc::Reading& reading);
// What a command prints; blocks. Errors are Hook's.
[[nodiscard]] base::Result<std::string> command_output(const std::vector<std::string>& words,
                                                       const spec::Environment& environment,
                                                       base::Duration limit);
// How long from the allocator's word to the end; may run a command. An error says why that is not
// known, or that there is no allocator.
[[nodiscard]] base::Result<alloc::Grace> grace_of(const spec::Environment& environment,
                                                  const std::string& allocator);

}  // namespace regroup::job
