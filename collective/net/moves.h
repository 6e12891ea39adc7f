// Operations over several hosts that only move data. Each function is this rank's part, as a task;
// the caller keeps the exchange and the memory of the operation until the task has ended. A rank's
// task may end before those of other ranks.
#pragma once

#include "collective/net/exchange.h"
#include "regroup/operation.h"

namespace regroup::collective::net {

[[nodiscard]] Task broadcast(Exchange& x, Operation o);
[[nodiscard]] Task allgather(Exchange& x, Operation o);
[[nodiscard]] Task gather(Exchange& x, Operation o);
[[nodiscard]] Task scatter(Exchange& x, Operation o);
[[nodiscard]] Task alltoall(Exchange& x, Operation o);

}  // namespace regroup::collective::net
