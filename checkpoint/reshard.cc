// Intersects boxes. A tensor has few pieces (one per owner), so each new piece is compared with all
// old ones.
#include "checkpoint/reshard.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "base/printable.h"

namespace regroup::checkpoint {
namespace {

using base::invalid_argument;
using base::Status;

Status same_tensor(const TensorLayout& old, const TensorLayout& wanted) {
  if (old.dtype != wanted.dtype) {
    return invalid_argument(fmt::format("tensor {}: got type {}, expected {}",
                                        base::escaped(old.name), base::escaped(old.dtype),
                                        base::escaped(wanted.dtype)));
  }
  if (old.shape == wanted.shape) return {};
  return invalid_argument(fmt::format("tensor {}: got shape {}, expected {}",
                                      base::escaped(old.name), to_string(whole(old.shape)),
                                      to_string(whole(wanted.shape))));
}

Status plan_piece(const TensorLayout& old, const TensorLayout& wanted, Copy copy,
                  std::vector<Copy>* out) {
  const Box& box = wanted.pieces[copy.to].box;
  if (!lies_within(box, wanted.shape))
    return invalid_argument(fmt::format("tensor {}: {} reaches beyond the tensor",
                                        base::escaped(old.name), to_string(box)));
  std::uint64_t missing = *volume_of(box.count);
  for (copy.from = 0; copy.from < old.pieces.size() && missing > 0; ++copy.from) {
    const auto part = intersection(old.pieces[copy.from].box, box);
    if (!part) continue;
    missing -= std::min(missing, *volume_of(part->count));
    copy.box = *part;
    out->push_back(copy);
  }
  if (missing == 0) return {};
  return invalid_argument(fmt::format("tensor {}: {} elements of {} are in no piece",
                                      base::escaped(old.name), missing, to_string(box)));
}

}  // namespace

base::Result<std::vector<Copy>> plan(const Layout& from, const Layout& to) {
  std::unordered_map<std::string_view, const TensorLayout*> by_name;
  for (const TensorLayout& tensor : from) by_name.emplace(tensor.name, &tensor);
  std::vector<Copy> out;
  for (std::size_t i = 0; i < to.size(); ++i) {
    const auto old = by_name.find(to[i].name);
    if (old == by_name.end())
      return invalid_argument(fmt::format("tensor {}: missing", base::escaped(to[i].name)));
    REGROUP_RETURN_IF_ERROR(same_tensor(*old->second, to[i]));
    for (std::size_t piece = 0; piece < to[i].pieces.size(); ++piece)
      REGROUP_RETURN_IF_ERROR(plan_piece(*old->second, to[i], {.tensor = i, .to = piece}, &out));
  }
  return out;
}

Box share_of_rows(const Shape& shape, std::uint32_t part, std::uint32_t parts) {
  Box box = whole(shape);
  if (shape.empty()) return box;
  const std::uint64_t each = shape[0] / parts, more = shape[0] % parts;
  box.start[0] = part * each + std::min<std::uint64_t>(part, more);
  box.count[0] = each + (part < more ? 1 : 0);
  return box;
}

}  // namespace regroup::checkpoint
