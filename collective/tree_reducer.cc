// Checks the arguments of TreeReducer::reduce().
#include "collective/tree_reducer.h"

#include <fmt/format.h>

namespace regroup::collective {

base::Status check_partials(std::span<const Partial> partials, Input result, Dtype dtype) {
  for (const Partial& partial : partials) {
    if (partial.data.size() != result.size()) {
      return base::invalid_argument(fmt::format(
          "tree_reduce: partial [{},{}) has {} bytes, the result {}", partial.leaves.begin,
          partial.leaves.end, partial.data.size(), result.size()));
    }
    if (size_of(dtype) == 2 && dtype != Dtype::kInt16 && partial.leaves.size() > 1) {
      return base::invalid_argument(fmt::format(
          "tree_reduce: partial [{},{}) of {} was rounded; keep partial sums as float32",
          partial.leaves.begin, partial.leaves.end, name_of(dtype)));
    }
  }
  if (result.size() % size_of(dtype) != 0) {
    return base::invalid_argument(fmt::format(
        "tree_reduce: {} bytes are not whole elements of {} bytes", result.size(), size_of(dtype)));
  }
  return {};
}

}  // namespace regroup::collective
