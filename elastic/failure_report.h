// Reports the failure of this process to its agent before the process ends.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"
#include "proto/failure.h"

namespace regroup::elastic {

// Fills in `member` and sends `failure` to the agent over a separate connection, so that any thread
// may call it, whatever the state of the session. Blocks for at most `timeout`. Returns what to
// print: empty: the full report (also if there is no agent, or it does not reply); a text: this
// text instead, since another member of this host has printed an equal report; "": nothing, since
// the launcher reports the failure.
[[nodiscard]] std::optional<std::string> report_failure(
    proto::Failure failure, base::Duration timeout = std::chrono::seconds(2));

}  // namespace regroup::elastic
