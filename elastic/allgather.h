// An allgather of one value of each rank.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "regroup/communicator.h"

namespace regroup::elastic {

// Returns the values by rank. Collective; fails as an allgather does.
template <class T>
[[nodiscard]] base::Result<std::vector<T>> allgather(collective::Communicator& communicator,
                                                     const T& own, base::TimePoint deadline) {
  std::vector<T> all(static_cast<std::size_t>(communicator.size()));
  REGROUP_RETURN_IF_ERROR(
      communicator.run(collective::Operation::allgather(std::as_bytes(std::span(&own, 1)),
                                                        std::as_writable_bytes(std::span(all))),
                       deadline));
  return all;
}

}  // namespace regroup::elastic
