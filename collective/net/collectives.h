// Collective operations over several hosts, of which each has a communicator of its own for its
// ranks.
#pragma once

#include "collective/net/exchange.h"
#include "regroup/operation.h"

namespace regroup::collective::net {

// This rank's part of `o`, any collective operation, checked by Operation::check(). It ends when
// the operation is complete here. The caller keeps `x` and the memory of `o` until then.
[[nodiscard]] Task run_collective(Exchange& x, Operation o);

}  // namespace regroup::collective::net
