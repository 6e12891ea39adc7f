// An operation between hosts, as a communicator gives it to the Engine. Plain data, without
// threads.
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
  std::vector<int> ranks;    // in the World, by rank in the communicator
  std::uint64_t number = 0;  // of the collective operation in the communicator
  CollectiveSignature signature;
  bool point_to_point = false;
  int peer = -1;  // of a point-to-point message: rank in the communicator
  std::function<net::Task()> begin;
};

}  // namespace regroup::collective::ucx
