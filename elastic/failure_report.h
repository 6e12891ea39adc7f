// Reports the failure of this process to its agent before the process ends.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"
#include "proto/failure.h"

namespace regroup::elastic {

// Fills in `member` and sends `failure` over a connection of its own, so that any thread may call
// it, whatever the state of the session. Blocks for at most `timeout`. Nothing: print the full
// report, also if there is no agent or it does not answer. A text: print that instead, since
// another member of this host has printed an equal report; an empty text: the launcher reports the
// failure.
[[nodiscard]] std::optional<std::string> report_failure(
    proto::Failure failure, base::Duration timeout = std::chrono::seconds(2));

}  // namespace regroup::elastic
