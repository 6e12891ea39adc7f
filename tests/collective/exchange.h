// One collective operation of a rank in the conformance suite, with inputs that every rank can
// compute, unaligned buffers, and the expected output.
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

// The input of each rank. Equal shapes and seeds give equal inputs.
using Inputs = std::shared_ptr<const std::vector<Bytes>>;
[[nodiscard]] Inputs make_inputs(const Shape& shape, int size, std::uint64_t seed);

// Memory for an Exchange to use and to fill with a pattern around its buffers; if a span is empty,
// the Exchange allocates its own. An operation in place and a broadcast use only `out`.
struct Room {
  std::span<std::byte> in;
  std::span<std::byte> out;
};

class Exchange {
 public:
  // For rank `rank` of `size`. All ranks must pass the same seed.
  Exchange(const Shape& shape, int rank, int size, std::uint64_t seed)
      : Exchange(shape, rank, size, make_inputs(shape, size, seed), {}) {}
  Exchange(const Shape& shape, int rank, int size, Inputs inputs, const Room& room);

  [[nodiscard]] const Operation& operation() const { return operation_; }
  // Returns "" if the output is right and the memory around it unchanged; otherwise the fault.
  [[nodiscard]] std::string verify() const;
  // Overwrite the buffers, as a caller may once the operation is complete. spoil_input() leaves an
  // input that lies in the output unchanged.
  void spoil_input();
  void spoil_output();

 private:
  std::span<std::byte> area(std::size_t index, std::span<std::byte> room, std::size_t bytes);

  Shape shape_;
  int rank_;
  Inputs inputs_;
  Bytes own_[2];
  // The output with its guards, and the input with its guards unless it lies in the output.
  std::span<std::byte> areas_[2];
  Operation operation_;
};

// Runs one operation and verifies its output.
[[nodiscard]] base::Status run_checked(Communicator& communicator, const Shape& shape,
                                       std::uint64_t seed, base::TimePoint deadline);

}  // namespace regroup::collective::testing
