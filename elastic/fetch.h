// Copies the snapshot of one host to another over the data plane. docs/design/elastic_hosts.md.
#pragma once

#include <functional>

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
// snapshot of the source host into the arena, and lets the members of its host read it once
// `permitted()` has returned OK. kDataLoss: the sizes are impossible. Does not check the bytes;
// adopt_state() does.
[[nodiscard]] base::Status fetch_state(Participant& self, collective::Communicator& communicator,
                                       base::TimePoint deadline,
                                       const std::function<base::Status()>& permitted);

// For jobs with a ledger. The source of a fetcher need not be the host of rank 0, and the host of
// the fetcher has no sum of the step that `world` resumes from: so were all others to die before
// rank 0 had written the line of that step, nobody would know it. Rank 0 calls permit_fetchers()
// when it has written the line and sent its own share, a fetcher await_permit(). Both do nothing if
// rank 0 has no state yet.
[[nodiscard]] base::Status permit_fetchers(const proto::World& world,
                                           collective::Communicator& communicator,
                                           base::TimePoint deadline);
[[nodiscard]] base::Status await_permit(const proto::World& world,
                                        collective::Communicator& communicator,
                                        base::TimePoint deadline);

}  // namespace regroup::elastic
