// What holds of tensors that a reader of a foreign format understood: a checkpoint can be written
// of them.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_store.h"
#include "checkpoint/dtype.h"
#include "tests/fuzz/require.h"

namespace regroup::fuzz {

inline bool is_utf8(const std::string& text) {
  using Json = nlohmann::json;
  return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::ignore)) == Json(text);
}

// Of tensors whose bytes lie in `file`, if that is given.
inline void require_writable(const std::vector<checkpoint::CheckpointPiece>& pieces,
                             std::span<const std::byte> file = {}) {
  std::set<std::string> names;
  for (const checkpoint::CheckpointPiece& piece : pieces) {
    require(names.insert(piece.name).second && is_utf8(piece.name));
    const auto element = checkpoint::size_of_dtype(piece.dtype);
    require(element.has_value() && piece.shape.size() <= checkpoint::kMaxRank);
    require(piece.box == checkpoint::whole(piece.shape));
    const auto volume = checkpoint::volume_of(piece.shape);
    require(volume.has_value() && piece.bytes.size() / *element == *volume &&
            piece.bytes.size() % *element == 0);
    if (piece.bytes.empty() || file.empty()) continue;
    require(piece.bytes.data() >= file.data() &&
            piece.bytes.data() + piece.bytes.size() <= file.data() + file.size());
  }
}

}  // namespace regroup::fuzz
