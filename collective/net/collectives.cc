// The local barriers of a host's ranks carry the signature of the operation that they belong to. So
// the first one detects a mismatch, and the local operations after it cannot differ. An operation
// that does something else first begins with a barrier of its own. An operation in which a rank
// could return before all have arrived ends with a barrier of all hosts.
#include "collective/net/collectives.h"

#include "collective/net/moves.h"
#include "collective/net/reductions.h"

namespace regroup::collective::net {
namespace {

bool may_return_early(Kind kind) {
  return kind == Kind::kBroadcast || kind == Kind::kReduce || kind == Kind::kGather ||
         kind == Kind::kScatter;
}

// The operation begins with a local barrier.
bool begins_with_local_barrier(Kind kind) {
  return kind == Kind::kAllreduce || kind == Kind::kReduce || kind == Kind::kReduceScatter;
}

Task barrier_of_all(Exchange& x) {
  if (x.layout().local_rank == 0) co_await x.barrier_between_hosts();
  if (x.layout().local_size() > 1) co_await x.run_locally(Operation::barrier());
}

Task perform(Exchange& x, const Operation& o) {
  switch (o.kind) {
    case Kind::kAllreduce:
    case Kind::kReduce:
      return reduce(x, o);
    case Kind::kReduceScatter:
      return reduce_scatter(x, o);
    case Kind::kBroadcast:
      return broadcast(x, o);
    case Kind::kAllgather:
      return allgather(x, o);
    case Kind::kGather:
      return gather(x, o);
    case Kind::kScatter:
      return scatter(x, o);
    case Kind::kAlltoall:
      return alltoall(x, o);
    default:
      return barrier_of_all(x);
  }
}

}  // namespace

Task run_collective(Exchange& x, Operation o) {
  const Layout& layout = x.layout();
  if (layout.hosts.size() == 1) {
    co_await x.run_locally(o);
    co_return;
  }
  const bool empty = o.kind == Kind::kBarrier || o.block(layout.size) == 0;
  if (layout.local_size() > 1 && (empty || !begins_with_local_barrier(o.kind)))
    co_await x.run_locally(Operation::barrier());
  if (!empty) co_await perform(x, o);
  if (empty || may_return_early(o.kind)) co_await barrier_of_all(x);
}

}  // namespace regroup::collective::net
