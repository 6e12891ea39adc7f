// Copies the snapshot of one host to another over the data plane. docs/design/elastic_hosts.md.
#pragma once

#include "base/clock.h"
#include "base/status.h"
#include "elastic/participant.h"
#include "regroup/communicator.h"

namespace regroup::elastic {

// Called by a donor after donate_state(): sends its share to the fetchers of the hosts for which
// this host is the source.
[[nodiscard]] base::Status send_state(Participant& self, collective::Communicator& communicator,
                                      base::TimePoint deadline);

// Called by a joining member before adopt_state(): if it is the fetcher of its host, receives the
// snapshot of the source host into the arena. kDataLoss: the sizes are impossible. Does not check
// the bytes; adopt_state() does.
[[nodiscard]] base::Status fetch_state(Participant& self, collective::Communicator& communicator,
                                       base::TimePoint deadline);

}  // namespace regroup::elastic
