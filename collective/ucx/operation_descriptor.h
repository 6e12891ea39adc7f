// An operation between hosts, as a communicator passes it to the Engine.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "collective/net/task.h"
#include "collective/signature.h"
#include "collective/ucx/active_message.h"

namespace regroup::collective::ucx {

struct OperationDescriptor {
  CommunicatorId communicator;
  std::vector<int> ranks;    // ranks[r]: rank in the World of the communicator's rank r
  std::uint64_t number = 0;  // of the collective operation in its communicator
  CollectiveSignature signature;
  bool point_to_point = false;
  int peer = -1;                     // for a point-to-point message: the peer's communicator rank
  std::function<net::Task()> begin;  // starts the operation's task
};

}  // namespace regroup::collective::ucx
