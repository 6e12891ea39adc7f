// Collective operations over several hosts. Within each host, the ranks use a communicator of their
// own.
#pragma once

#include "collective/net/exchange.h"
#include "regroup/operation.h"

namespace regroup::collective::net {

// Runs this rank's part of `o`, any collective operation that has passed Operation::check(). The
// task ends when the operation is complete here. The caller keeps `x` and the memory of `o` until
// then.
[[nodiscard]] Task run_collective(Exchange& x, Operation o);

}  // namespace regroup::collective::net
