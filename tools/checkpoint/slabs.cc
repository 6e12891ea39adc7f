// A slab has whole rows.
#include "tools/checkpoint/slabs.h"

#include <algorithm>
#include <vector>

namespace regroup::checkpoint_tool {

base::Status for_each_slab(
    const checkpoint::Checkpoint& from, std::size_t tensor,
    const std::function<base::Status(const checkpoint::Box&, std::span<const std::byte>)>& take) {
  const checkpoint::Tensor& of = from.manifest().tensors[tensor];
  const std::uint64_t total = checkpoint::bytes_of(of);
  checkpoint::Box box = checkpoint::whole(of.shape);
  if (total == 0) return {};
  const std::uint64_t rows = of.shape.empty() ? 1 : of.shape[0], row_bytes = total / rows;
  const std::uint64_t at_once = std::max<std::uint64_t>(1, kSlabBytes / row_bytes);
  std::vector<std::byte> bytes;
  for (std::uint64_t row = 0; row < rows; row += at_once) {
    const std::uint64_t count = std::min(at_once, rows - row);
    if (!of.shape.empty()) {
      box.start[0] = row;
      box.count[0] = count;
    }
    bytes.resize(count * row_bytes);
    REGROUP_RETURN_IF_ERROR(from.read(tensor, box, bytes));
    REGROUP_RETURN_IF_ERROR(take(box, bytes));
  }
  return {};
}

}  // namespace regroup::checkpoint_tool
