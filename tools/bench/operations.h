// The operations that `regroup bench` measures: the sizes of their memory, the factors of
// nccl-tests, the bytes that they move at least.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "regroup/operation.h"

namespace regroup::bench {

// `size` as nccl-tests has it: of the larger of input and output, in bytes. With P ranks.
struct OperationSpec {
  std::string_view name;
  collective::Kind kind;    // kSend: each rank sends to the next and receives from the one before
  bool in_blocks = false;   // the input is P blocks, one for each rank; else one
  bool out_blocks = false;  // the output likewise
  bool reduces = false;
  bool rooted = false;
  bool out_of_place = true;  // may have an output apart from its input
  bool in_place = true;
  double (*bus)(double ranks);      // bus bandwidth / (size / time)
  double (*traffic)(double ranks);  // bytes read and written at least / size; 0: none

  // Bytes per rank and block of about `size` bytes in all: whole elements, at least one.
  [[nodiscard]] std::size_t block(std::size_t size, int ranks, collective::Dtype dtype) const;
  [[nodiscard]] std::size_t size(std::size_t block, int ranks) const;
  [[nodiscard]] bool in_all_blocks() const { return in_blocks || out_blocks; }
};

[[nodiscard]] std::span<const OperationSpec> operations();
[[nodiscard]] const OperationSpec* find_operation(std::string_view name);

// Bit operations are for integers.
[[nodiscard]] bool can_reduce(collective::Op op, collective::Dtype dtype);

// What is measured in one series.
struct Case {
  const OperationSpec* spec;
  collective::Dtype dtype = collective::Dtype::kFloat32;
  collective::Op op = collective::Op::kSum;
  int root = 0;
  std::size_t block = 0;  // bytes
  bool in_place = false;
};

// A case on one rank: what to start, where its input goes, and where its result appears.
struct Call {
  collective::Operation operation;
  std::optional<collective::Operation> receive;  // beside it, of kSend
  collective::Output input;                      // empty: this rank brings none
  collective::Output output;                     // empty: this rank gets none
};

// `first` and `second`: memory of size() bytes each, the second unused in place. Of an allreduce
// that is not in place the output is `second` of every rank, which may be the same memory.
[[nodiscard]] Call make_call(const Case& c, int rank, int ranks, collective::Output first,
                             collective::Output second);

// A part of a result: `count` elements from element `at` on are those of `source` from its element
// `index` on, or their reduction over all ranks.
struct Part {
  static constexpr int kAllRanks = -1;
  std::size_t at, count;
  int source;
  std::size_t index;
};
// The whole output of `rank`, in parts; empty if it gets none.
[[nodiscard]] std::vector<Part> expected_parts(const Case& c, int rank, int ranks);

}  // namespace regroup::bench
