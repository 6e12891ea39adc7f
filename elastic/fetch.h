// State of a step from one node's snapshot to another's, over the data plane. docs/design/elastic_hosts.md.
#pragma once

#include "collective/communicator.h"
#include "core/clock.h"
#include "core/status.h"
#include "elastic/participant.h"

namespace regroup::elastic {

// Donor, after donate_state(): sends what it wrote to the fetchers of other nodes that get it from here.
[[nodiscard]] core::Status send_state(Participant& self, collective::Communicator& communicator,
                                      core::TimePoint deadline);

// Newcomer, before adopt_state(): if it is the fetcher of its node, lays the snapshot of another node into
// the arena here. kDataLoss if what comes cannot be one; damage to its bytes is found by adopt_state().
[[nodiscard]] core::Status fetch_state(Participant& self, collective::Communicator& communicator,
                                       core::TimePoint deadline);

}  // namespace regroup::elastic
