// Tells the agent how this process fails, before it ends.
#pragma once

#include <optional>
#include <string>

#include "core/clock.h"
#include "core/failure.h"

namespace regroup::elastic {

// Over a connection of its own, so that any thread may call it, whatever became of the session; `member` is
// filled in. Blocks for at most `timeout`. Nothing: this process is to print its report itself, also where
// there is no agent or it does not answer. A text: that is to be printed in its place, for another member of
// this host has printed the same one; empty: the launcher says it all.
[[nodiscard]] std::optional<std::string> report_failure(core::Failure failure,
                                                        core::Duration timeout = std::chrono::seconds(2));

}  // namespace regroup::elastic
