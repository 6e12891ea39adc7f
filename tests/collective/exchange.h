// One collective operation with data, as a rank of the conformance suite runs it: inputs that every
// rank can compute, buffers that lie askew, the expected output.
#pragma once

#include <memory>
#include <string>

#include "regroup/communicator.h"
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

// The contributions by rank; equal for the same shape and seed.
using Inputs = std::shared_ptr<const std::vector<Bytes>>;
[[nodiscard]] Inputs make_inputs(const Shape& shape, int size, std::uint64_t seed);

// Memory in which an Exchange shall lie, some of it painted; where it is empty, ordinary memory.
// Both in place or both of a broadcast: in `out`.
struct Room {
  std::span<std::byte> in;
  std::span<std::byte> out;
};

class Exchange {
 public:
  // Of rank `rank` of `size`; `seed` is the same in all.
  Exchange(const Shape& shape, int rank, int size, std::uint64_t seed)
      : Exchange(shape, rank, size, make_inputs(shape, size, seed), {}) {}
  Exchange(const Shape& shape, int rank, int size, Inputs inputs, const Room& room);

  [[nodiscard]] const Operation& operation() const { return operation_; }
  // Empty if the output is right and the memory around it untouched; else the fault.
  [[nodiscard]] std::string verify() const;
  // Change all of the memory, as the caller may once the operation is done; the first leaves an
  // input alone that lies in the output.
  void spoil_input();
  void spoil_output();

 private:
  std::span<std::byte> area(std::size_t index, std::span<std::byte> room, std::size_t bytes);

  Shape shape_;
  int rank_;
  Inputs inputs_;
  Bytes own_[2];
  // With their guards: of the output, of the input unless it lies in that.
  std::span<std::byte> areas_[2];
  Operation operation_;
};

// Runs it and verifies.
[[nodiscard]] base::Status run_checked(Communicator& communicator, const Shape& shape,
                                       std::uint64_t seed, base::TimePoint deadline);

}  // namespace regroup::collective::testing
