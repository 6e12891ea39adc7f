// Reductions over several hosts. Each function is this rank's part, as a task; the caller keeps the
// exchange and the memory of the operation until the task has ended. The ranks of each host begin
// with a local operation.
#pragma once

#include "collective/net/exchange.h"
#include "regroup/operation.h"

namespace regroup::collective::net {

// `o` is an allreduce or a reduce.
[[nodiscard]] Task reduce(Exchange& x, const Operation& o);
[[nodiscard]] Task reduce_scatter(Exchange& x, Operation o);

}  // namespace regroup::collective::net
