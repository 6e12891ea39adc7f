// Where the pieces of a state lie in the arena's save area: the same on all members, whose states are equal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/world.h"
#include "elastic/state.h"

namespace regroup::elastic {

using Pieces = std::vector<std::span<const std::byte>>;

inline constexpr const char* kPiecesName = "regroup.pieces";  // the tensor that has a layout's `lengths`
inline constexpr const char* kBytes = "uint8";                // the type of pieces that may be text
inline constexpr std::size_t kShareAlignment = 4096;          // of large pieces, as O_DIRECT likes it

struct SaveLayout {
  std::vector<std::uint64_t> at;      // of each piece, in the area; 0: padding, which is not saved
  std::vector<std::int64_t> lengths;  // of each piece; negative for padding
  std::uint64_t lengths_at = 0;       // they are saved, too
  std::uint64_t used = 0;

  // Where something of that size could follow.
  [[nodiscard]] std::uint64_t next(std::size_t bytes) const;
};

// What each piece is; those that the state does not describe are bytes.
[[nodiscard]] std::vector<TensorInfo> infos_of(State& state, const Pieces& pieces);
// Bytes come last: they may be text, whose length changes with the step, and move nothing else then.
[[nodiscard]] SaveLayout lay_out(const Pieces& pieces, const std::vector<TensorInfo>& infos);

// For regroup-persist, as JSON. `base`: offset of the area in the arena.
struct Described {
  core::Step step = 0;
  const std::string& model;
  const std::string& fingerprint;
};
[[nodiscard]] std::string describe(const SaveLayout& layout, const std::vector<TensorInfo>& infos,
                                   std::uint64_t base, const Described& what);

// Bytes of the area that member `mine` of `all` brings.
struct ShareRange {
  std::uint64_t begin = 0, end = 0;
};
[[nodiscard]] ShareRange share_range(const SaveLayout& layout, std::size_t mine, std::size_t all);

}  // namespace regroup::elastic
