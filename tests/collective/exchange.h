// One collective operation with data, as a rank of the conformance suite runs it: inputs that every rank can
// compute, buffers that lie askew, the expected output.
#pragma once

#include <string>

#include "collective/communicator.h"
#include "tests/collective/reference.h"

namespace regroup::collective::testing {

struct Shape {
  Kind kind;
  Dtype dtype = Dtype::kUint8;
  Op op = Op::kSum;
  int root = 0;
  std::size_t elements = 1;  // of a block
  bool in_place = false;

  [[nodiscard]] std::string to_string() const;
};

inline constexpr Kind kCollectives[] = {Kind::kAllreduce, Kind::kReduce,    Kind::kReduceScatter,
                                        Kind::kAllgather, Kind::kGather,    Kind::kScatter,
                                        Kind::kAlltoall,  Kind::kBroadcast, Kind::kBarrier};

class Exchange {
 public:
  // Of rank `rank` of `size`; `seed` is the same in all.
  Exchange(const Shape& shape, int rank, int size, std::uint64_t seed);

  [[nodiscard]] const Operation& operation() const { return operation_; }
  // Empty if the output is right and nothing beside it was touched, else what is wrong.
  [[nodiscard]] std::string verify() const;

 private:
  const Shape shape_;
  const int rank_;
  std::vector<Bytes> inputs_;  // by rank
  Bytes memory_;
  Operation operation_;
};

// Runs it and verifies.
[[nodiscard]] core::Status run_checked(Communicator& communicator, const Shape& shape, std::uint64_t seed,
                                       core::TimePoint deadline);

}  // namespace regroup::collective::testing
