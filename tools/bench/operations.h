// The operations that `regroup bench` measures: the sizes of their memory, the bandwidth factors of
// nccl-tests, the least number of bytes that they move.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "regroup/operation.h"

namespace regroup::bench {

// An operation between P ranks. `size` is that of nccl-tests: the bytes of the larger of input and
// output.
struct OperationSpec {
  std::string_view name;
  collective::Kind kind;    // kSend: each rank sends to rank + 1 and receives from rank - 1
  bool in_blocks = false;   // the input has P blocks, one for each rank; otherwise one block
  bool out_blocks = false;  // the output has P blocks; otherwise one
  bool reduces = false;
  bool rooted = false;
  bool out_of_place = true;         // can be measured with an output apart from its input
  bool in_place = true;             // can be measured in place
  double (*bus)(double ranks);      // bus bandwidth / (size / time)
  double (*traffic)(double ranks);  // least bytes read and written / size; 0: none

  // The bytes of a block that make the whole about `size` bytes: whole elements, at least one.
  [[nodiscard]] std::size_t block(std::size_t size, int ranks, collective::Dtype dtype) const;
  [[nodiscard]] std::size_t size(std::size_t block, int ranks) const;
  [[nodiscard]] bool in_all_blocks() const { return in_blocks || out_blocks; }
};

[[nodiscard]] std::span<const OperationSpec> operations();
[[nodiscard]] const OperationSpec* find_operation(std::string_view name);

// False for a bit operation on a floating-point type.
[[nodiscard]] bool can_reduce(collective::Op op, collective::Dtype dtype);

// What one series measures.
struct Case {
  const OperationSpec* spec;
  collective::Dtype dtype = collective::Dtype::kFloat32;
  collective::Op op = collective::Op::kSum;
  int root = 0;
  std::size_t block = 0;  // bytes
  bool in_place = false;
};

// What one rank starts for a case, where it writes its input, and where its result appears.
struct Call {
  collective::Operation operation;
  std::optional<collective::Operation> receive;  // kSend: to be started as well
  collective::Output input;                      // empty: this rank has no input
  collective::Output output;                     // empty: this rank has no output
};

// `first` and `second` are memory of size() bytes each; in place only `first` is used. Out of place
// an allreduce writes to `second`, which may be the same memory in all ranks.
[[nodiscard]] Call make_call(const Case& c, int rank, int ranks, collective::Output first,
                             collective::Output second);

// A part of an expected result: elements at..at+count equal the input of rank `source` from element
// `index` on; if `source` is kAllRanks, the reduction of these elements over all ranks.
struct Part {
  static constexpr int kAllRanks = -1;
  std::size_t at;
  std::size_t count;
  int source;
  std::size_t index;
};
// The whole output of `rank`, in parts; empty if the rank has no output.
[[nodiscard]] std::vector<Part> expected_parts(const Case& c, int rank, int ranks);

}  // namespace regroup::bench
