// diff: compares the tensors of two checkpoints, their types, shapes and elements.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/printable.h"
#include "base/status.h"
#include "checkpoint/chain.h"
#include "checkpoint/dtype.h"
#include "tools/checkpoint/command.h"
#include "tools/checkpoint/progress.h"
#include "tools/checkpoint/slabs.h"

namespace regroup::checkpoint_tool {
namespace {

using checkpoint::Box;
using checkpoint::Checkpoint;
using checkpoint::Tensor;

base::Result<std::uint64_t> differing_elements(const Checkpoint& a, std::size_t in_a,
                                               const Checkpoint& b, std::size_t in_b) {
  const std::uint64_t size = *checkpoint::size_of_dtype(a.manifest().tensors[in_a].dtype);
  std::uint64_t count = 0;
  std::vector<std::byte> other;
  const auto compare = [&](const Box& box, std::span<const std::byte> bytes) -> base::Status {
    other.resize(bytes.size());
    REGROUP_RETURN_IF_ERROR(b.read(in_b, box, other));
    for (std::size_t at = 0; at < bytes.size(); at += size)
      count += std::memcmp(bytes.data() + at, other.data() + at, size) != 0 ? 1 : 0;
    return {};
  };
  REGROUP_RETURN_IF_ERROR(for_each_slab(a, in_a, compare));
  return count;
}

bool same_form(const Tensor& a, const Tensor& b) {
  if (a.dtype == b.dtype && a.shape == b.shape) return true;
  fmt::print("{}: {} {} and {} {}\n", base::escaped(a.name), a.dtype,
             to_string(checkpoint::whole(a.shape)), b.dtype, to_string(checkpoint::whole(b.shape)));
  return false;
}

}  // namespace

Answer diff(const Arguments& arguments) {
  std::vector<Checkpoint> of;
  for (const std::string& word : arguments.words) {
    REGROUP_ASSIGN_OR_RETURN(const auto path, checkpoint_at(word, arguments.step));
    REGROUP_ASSIGN_OR_RETURN(auto opened, Checkpoint::open(path));
    REGROUP_RETURN_IF_ERROR(checkpoint::check_whole(opened));
    of.push_back(std::move(opened));
  }
  const Checkpoint &a = of[0], &b = of[1];
  ProgressBar bar("comparing");
  bool same = true;
  std::uint64_t done = 0, total = 0;
  for (const Tensor& tensor : a.manifest().tensors) total += checkpoint::bytes_of(tensor);
  for (std::size_t i = 0; i < a.manifest().tensors.size(); ++i) {
    const Tensor& tensor = a.manifest().tensors[i];
    const auto there = b.find(tensor.name);
    if (!there) fmt::print("{}: only in {}\n", base::escaped(tensor.name), base::escaped(a.path()));
    if (!there || !same_form(tensor, b.manifest().tensors[*there])) {
      same = false;
      continue;
    }
    REGROUP_ASSIGN_OR_RETURN(const auto count, differing_elements(a, i, b, *there));
    if (count > 0)
      fmt::print("{}: {} of {} elements differ\n", base::escaped(tensor.name), count,
                 *checkpoint::volume_of(tensor.shape));
    same &= count == 0;
    bar.show(done += checkpoint::bytes_of(tensor), total);
  }
  for (const Tensor& tensor : b.manifest().tensors) {
    if (a.find(tensor.name)) continue;
    fmt::print("{}: only in {}\n", base::escaped(tensor.name), base::escaped(b.path()));
    same = false;
  }
  return same ? 0 : 1;
}

}  // namespace regroup::checkpoint_tool
