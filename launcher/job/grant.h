// The allocators that the environment of this process names, and what they have granted.
#pragma once

#include "base/status.h"
#include "launcher/alloc/reading.h"
#include "launcher/spec/options.h"

namespace regroup::cmd {

// Where allocators are looked for: the environment and the files of this machine. `environment` outlives it.
[[nodiscard]] launcher::AllocInput allocation_input(const launcher::Environment& environment);
// What the allocator of that name ("": any) has granted; nothing, and no error, if there is none.
[[nodiscard]] base::Result<launcher::Grant> grant_of(const launcher::Environment& environment,
                                                     const std::string& allocator);
// What a command prints; blocks. Errors are Hook's.
[[nodiscard]] base::Result<std::string> command_output(const std::vector<std::string>& words,
                                                       const launcher::Environment& environment,
                                                       base::Duration limit);
// How long from the allocator's word to the end; may run a command. An error says why that is not known, or
// that there is no allocator.
[[nodiscard]] base::Result<launcher::Grace> grace_of(const launcher::Environment& environment,
                                                     const std::string& allocator);

}  // namespace regroup::cmd
