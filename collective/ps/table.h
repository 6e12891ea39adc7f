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
#include "regroup/ps.h"

namespace regroup::collective::ps {

// Names in lower case, for messages: "hash", "row_adagrad", "uniform". Static strings. Any thread,
// as all functions of this header; none blocks.
[[nodiscard]] const char* name_of(TableKind kind);
[[nodiscard]] const char* name_of(OptimizerKind kind);
[[nodiscard]] const char* name_of(InitialKind kind);
// The optimizer of this name; kInvalidArgument names the known ones.
[[nodiscard]] base::Result<OptimizerKind> optimizer_of(std::string_view name);

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
// Refuses scalars that differ from those of another leaf of the same step.
[[nodiscard]] base::Status check_scalars(const Scalars& here, const Scalars& there);

// A bijection of 64-bit numbers that spreads neighbours: the finaliser of MurmurHash3 as Stafford
// (variant 13) and SplitMix64 have it.
[[nodiscard]] constexpr std::uint64_t mix64(std::uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
  return x ^ x >> 31;
}
// The inverse of mix64().
[[nodiscard]] constexpr std::uint64_t unmix64(std::uint64_t x) {
  x = (x ^ x >> 31 ^ x >> 62) * 0x319642b2d24d8ec3ULL;
  x = (x ^ x >> 27 ^ x >> 54) * 0x96de1b173f119089ULL;
  return x ^ x >> 30 ^ x >> 60;
}
static_assert(unmix64(mix64(0x0123456789abcdefULL)) == 0x0123456789abcdefULL);
// Of a table's name: its FNV-1a hash, mixed.
[[nodiscard]] constexpr std::uint64_t hash_of_name(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return mix64(hash);
}
// The position of an id that check_keys() accepted.
[[nodiscard]] constexpr std::uint64_t position_of(TableKind kind, std::int64_t id) {
  const auto number = static_cast<std::uint64_t>(id);
  return kind == TableKind::kHash ? mix64(number) : number;
}

// The id of a position: the inverse of position_of().
[[nodiscard]] constexpr std::int64_t id_at(TableKind kind, std::uint64_t position) {
  return static_cast<std::int64_t>(kind == TableKind::kHash ? unmix64(position) : position);
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
inline constexpr std::uint32_t kMaxStores = 64;    // that share tables
// Cuts a table: dense ones into slices of kDenseSliceBytes, sparse ones into the next power of two
// of max(16, 4 * servers) equal intervals, as far as it has so many rows. No result depends on it.
// Of a part of a table: those of its ranges that the store has, perhaps none. `servers` is ignored
// then: the table is cut once for all stores, by the number of their shards.
[[nodiscard]] std::vector<PositionRange> ranges_of(const TableSpec& spec, std::uint32_t servers);
// The store that has range number `range` of a table, of `stores` that share it. They take turns;
// the first one depends on the name, so that tables of one range are spread, too.
[[nodiscard]] constexpr std::uint32_t store_of_range(std::string_view table, std::size_t range,
                                                     std::uint32_t stores) {
  return static_cast<std::uint32_t>((hash_of_name(table) % stores + range) % stores);
}
// True if a store with this part of a table has range number `range`.
[[nodiscard]] constexpr bool has_range(const TablePart& part, std::string_view table,
                                       std::size_t range) {
  const std::uint32_t first = store_of_range(table, range, part.of);
  return (part.number + part.of - first) % part.of < part.replicas;
}
// Elements of a dense table, or of the part of one that a store has.
[[nodiscard]] std::uint64_t dense_elements(const TableSpec& spec);

}  // namespace regroup::collective::ps
