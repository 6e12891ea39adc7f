// Reductions over several hosts: the part of this rank, as a task. The caller keeps the exchange
// and the memory of the operation until the task has ended. Within each host the ranks begin with
// an operation among themselves.
#pragma once

#include "collective/net/exchange.h"
#include "regroup/operation.h"

namespace regroup::collective::net {

// An allreduce or a reduce.
[[nodiscard]] Task reduce(Exchange& x, const Operation& o);
[[nodiscard]] Task reduce_scatter(Exchange& x, Operation o);

}  // namespace regroup::collective::net
