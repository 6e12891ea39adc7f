// What a table of the parameter server is, and what its callers may ask of it. Checks refuse with
// kInvalidArgument, name the table, the key and both sides, and change nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "regroup/operation.h"

namespace regroup::collective::ps {

enum class TableKind : std::uint8_t {
  kDense,   // a tensor; a position is an element
  kDirect,  // rows 0 to rows - 1; a position is an id
  kHash,    // rows of any 64-bit id; a position is mix64(id)
};
enum class OptimizerKind : std::uint8_t {
  kSum,
  kAssign,
  kSgd,
  kMomentum,
  kAdagrad,
  kRowAdagrad,  // one accumulator per row: the mean of the squared gradients
  kAdam,
  kLazyAdam,  // Adam of the rows that get a gradient; a row's step is the number of its updates
  kFtrl,
};
enum class InitialKind : std::uint8_t { kZeros, kConstant, kUniform, kNormal };

// Names in lower case, for messages: "hash", "row_adagrad", "uniform". Static strings. Any thread,
// as all functions of this header; none blocks.
[[nodiscard]] const char* name_of(TableKind kind);
[[nodiscard]] const char* name_of(OptimizerKind kind);
[[nodiscard]] const char* name_of(InitialKind kind);
// The optimizer of this name; kInvalidArgument names the known ones.
[[nodiscard]] base::Result<OptimizerKind> optimizer_of(std::string_view name);

struct Initializer {
  InitialKind kind = InitialKind::kZeros;
  double first = 0;   // constant: the value; uniform: lowest value; normal: mean
  double second = 0;  // uniform: highest value; normal: standard deviation
  bool operator==(const Initializer&) const = default;
};

// Hyperparameters under the names of torch.optim; learning rates are in Scalars.
struct OptimizerSpec {
  OptimizerKind kind = OptimizerKind::kSum;
  double momentum = 0;  // of kMomentum
  double beta1 = 0.9;   // of kAdam, kLazyAdam
  double beta2 = 0.999;
  double epsilon = 1e-8;    // of kAdagrad, kRowAdagrad, kAdam, kLazyAdam
  double weight_decay = 0;  // of kSgd, kMomentum, kAdam, kLazyAdam; added to the gradient
  double l1 = 0;            // of kFtrl, as l2 and beta
  double l2 = 0;
  double beta = 0;
  bool operator==(const OptimizerSpec&) const = default;
};

// What a push carries beside gradients.
struct Scalars {
  double lr = 0;  // sum and assign ignore it
  bool operator==(const Scalars&) const = default;
};

struct TableSpec {
  std::string name;  // [A-Za-z0-9_./-], 1 to 200 bytes
  TableKind kind = TableKind::kDense;
  std::uint64_t rows = 0;  // dense: elements; direct: number of ids; hash: 0
  std::uint32_t dim = 1;   // elements of a row; dense: 1
  Dtype dtype = Dtype::kFloat32;
  Initializer init;
  OptimizerSpec optimizer;
  std::uint32_t evict_after = 0;  // steps without a push after which a row is forgotten; 0: never
  bool operator==(const TableSpec&) const = default;

  [[nodiscard]] std::size_t value_bytes() const { return dim * size_of(dtype); }  // of a row
  // The type in which the optimizer computes and gradients come: float32 for 16-bit tables.
  [[nodiscard]] Dtype compute_dtype() const;
  // Bytes of the optimizer's state of a row; it begins as zeros.
  [[nodiscard]] std::size_t state_bytes() const;
};

inline constexpr std::size_t kMaxNameBytes = 200;
inline constexpr std::uint32_t kMaxDim = 4096;

// Refuses a spec that no process may open.
[[nodiscard]] base::Status check(const TableSpec& spec);
// Refuses `here` unless it equals `there`, the spec with which `who` ("worker 1") opened the table.
[[nodiscard]] base::Status check_same(const TableSpec& here, const TableSpec& there,
                                      std::string_view who);
// Refuses keys that are outside the table or not unique. `ids` is in the order of the batch.
[[nodiscard]] base::Status check_keys(const TableSpec& spec, std::span<const std::int64_t> ids);
// Refuses a push whose gradients are not one row of the compute dtype for each of `keys` keys.
[[nodiscard]] base::Status check_push(const TableSpec& spec, std::size_t keys, std::size_t rows,
                                      Dtype gradient, const Scalars& scalars);
// Refuses scalars that differ from those of leaf 0.
[[nodiscard]] base::Status check_scalars(const Scalars& here, const Scalars& leaf0);

// A bijection of 64-bit numbers that spreads neighbours: the finaliser of MurmurHash3 as Stafford
// (variant 13) and SplitMix64 have it.
[[nodiscard]] constexpr std::uint64_t mix64(std::uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
  return x ^ x >> 31;
}
// The position of an id that check_keys() accepted.
[[nodiscard]] constexpr std::uint64_t position_of(TableKind kind, std::int64_t id) {
  const auto number = static_cast<std::uint64_t>(id);
  return kind == TableKind::kHash ? mix64(number) : number;
}

// An interval of positions of a table: the unit of placement, replication and order.
struct PositionRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;  // inclusive, since a hash table has 2^64 positions
  bool operator==(const PositionRange&) const = default;
  [[nodiscard]] bool has(std::uint64_t position) const {
    return position >= first && position <= last;
  }
};
inline constexpr std::uint64_t kDenseSliceBytes = 4 << 20;
inline constexpr std::uint32_t kMaxRanges = 4096;  // of a job
// Cuts a table: dense ones into slices of kDenseSliceBytes, sparse ones into the next power of two
// of max(16, 4 * servers) equal intervals, as far as it has so many rows. No result depends on it.
[[nodiscard]] std::vector<PositionRange> ranges_of(const TableSpec& spec, std::uint32_t servers);

}  // namespace regroup::collective::ps
