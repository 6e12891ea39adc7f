// The layout of a state in the arena's save area, equal on all members, whose states are equal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/world.h"
#include "regroup/state.h"

namespace regroup::elastic {

using Pieces = std::vector<std::span<const std::byte>>;

// The tensor that has a layout's `lengths`.
inline constexpr const char* kPiecesName = "regroup.pieces";
inline constexpr const char* kBytes = "uint8";        // type of pieces that may be text
inline constexpr std::size_t kShareAlignment = 4096;  // alignment of large pieces, for O_DIRECT

struct SaveLayout {
  std::vector<std::uint64_t> at;      // offset of each piece in the area; 0: padding, not saved
  std::vector<std::int64_t> lengths;  // length of each piece; negative for padding
  std::uint64_t lengths_at = 0;       // offset at which the lengths are saved
  std::uint64_t used = 0;

  // The offset at which a further piece of `bytes` bytes would be placed.
  [[nodiscard]] std::uint64_t next(std::size_t bytes) const;
};

// The description of each piece; a piece that the state does not describe has type kBytes.
[[nodiscard]] std::vector<TensorInfo> infos_of(State& state, const Pieces& pieces);
// Lays out the pieces. Those of type kBytes come last: they may be text, whose length changes from
// step to step, and so do not move any tensor.
[[nodiscard]] SaveLayout lay_out(const Pieces& pieces, const std::vector<TensorInfo>& infos);

// The description for regroup-persist, as JSON. `base`: offset of the area in the arena.
struct Described {
  proto::Step step = 0;
  const std::string& model;
  const std::string& fingerprint;
};
[[nodiscard]] std::string describe(const SaveLayout& layout, const std::vector<TensorInfo>& infos,
                                   std::uint64_t base, const Described& what);

// The bytes of the area that member `mine` of `all` copies.
struct ShareRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};
[[nodiscard]] ShareRange share_range(const SaveLayout& layout, std::size_t mine, std::size_t all);

}  // namespace regroup::elastic
