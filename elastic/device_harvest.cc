// Order of a table: the copy of the one before is over -> table written -> copied to the device ->
// kernel -> next copy, all but the first two on one stream.
#include "elastic/device_harvest.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "collective/cuda/viability.h"
#include "elastic/options.h"

namespace regroup::elastic {

using base::Status;
using collective::cuda::HarvestPiece;

namespace {

constexpr std::size_t kAlignment = 16;  // of a leaf that a launch fills

}  // namespace

// After an error of the device these calls fail, and the end of the process frees everything.
DeviceHarvest::~DeviceHarvest() {
  const collective::cuda::Driver& driver = stream_.driver();
  for (Table& table : tables_) outgrown_.push_back(std::move(table));
  for (Table& table : outgrown_) {
    if (!stream_.drain()) {
      (void)table.memory.release();  // the device may read it still
      continue;
    }
    if (table.device != 0) (void)driver.memory_free(table.device);
    if (table.pinned != nullptr) (void)driver.host_unregister(table.pinned);
    if (table.copied != nullptr) (void)driver.event_destroy(table.copied);
  }
}

Status DeviceHarvest::check(std::span<const GradientPart> parts) const {
  const std::size_t size = collective::size_of(dtype_);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const GradientPart& part = parts[i];
    if (reinterpret_cast<std::uintptr_t>(part.values) % size != 0)
      return base::invalid_argument(fmt::format(
          "fill_gradient: expected values on the device at a multiple of {} bytes, got {}", size,
          fmt::ptr(part.values)));
    if (i > 0 && part.weight != parts[i - 1].weight && part.begin * size % kAlignment != 0)
      return base::invalid_argument(fmt::format(
          "fill_gradient: expected a part of another weight at a multiple of {} elements on a "
          "device, got one from {} on",
          kAlignment / size, part.begin));
  }
  return {};
}

Status DeviceHarvest::prepare(Table& table, std::size_t pieces) {
  const collective::cuda::Driver& driver = stream_.driver();
  if (table.copied != nullptr)
    REGROUP_RETURN_IF_ERROR(stream_.wait(table.copied, "copy of a table of gradients"));
  if (table.room >= pieces) return {};
  if (table.room > 0) outgrown_.push_back(std::exchange(table, Table()));
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t bytes = (pieces * sizeof(HarvestPiece) + page - 1) / page * page;
  table.memory = {static_cast<std::byte*>(std::aligned_alloc(page, bytes)), std::free};
  if (!table.memory)
    return base::resource_exhausted(fmt::format("no memory for {} bytes of a table", bytes));
  table.pinned = stream_.pin({table.memory.get(), bytes});
  REGROUP_RETURN_IF_ERROR(
      stream_.check(driver.memory_allocate(&table.device, bytes),
                    fmt::format("cuMemAlloc of {} bytes for a table of gradients", bytes)));
  REGROUP_RETURN_IF_ERROR(stream_.check(
      driver.event_create(&table.copied, collective::cuda::kDisableTiming), "cuEventCreate"));
  table.room = bytes / sizeof(HarvestPiece);
  return {};
}

Status DeviceHarvest::fill(std::span<std::byte> leaf, std::span<const GradientPart> parts) {
  REGROUP_RETURN_IF_ERROR(check(parts));
  Table& table = tables_[next_++ % tables_.size()];
  REGROUP_RETURN_IF_ERROR(prepare(table, std::max<std::size_t>(parts.size(), 1)));
  auto* const pieces = reinterpret_cast<HarvestPiece*>(table.memory.get());
  std::uint64_t first = 0;  // element of the leaf where the launch of a part begins
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0 && parts[i].weight != parts[i - 1].weight) first = parts[i].begin;
    pieces[i] = {parts[i].values, parts[i].begin - first, parts[i].count};
  }
  const collective::cuda::Driver& driver = stream_.driver();
  if (!parts.empty())
    REGROUP_RETURN_IF_ERROR(
        stream_.check(driver.copy_to_device(table.device, pieces,
                                            parts.size() * sizeof(HarvestPiece), stream_.stream()),
                      "cuMemcpyHtoDAsync"));
  REGROUP_RETURN_IF_ERROR(
      stream_.check(driver.event_record(table.copied, stream_.stream()), "cuEventRecord"));
  return launch(leaf, parts, table);
}

Status DeviceHarvest::launch(std::span<std::byte> leaf, std::span<const GradientPart> parts,
                             const Table& table) const {
  const std::size_t size = collective::size_of(dtype_);
  const auto* const pieces = reinterpret_cast<const HarvestPiece*>(table.device);
  std::uint64_t first = 0;
  for (std::size_t begin = 0; begin == 0 || begin < parts.size();) {
    const double weight = parts.empty() ? 1 : parts[begin].weight;
    std::size_t end = begin;
    while (end < parts.size() && parts[end].weight == weight) ++end;
    const std::uint64_t last = end < parts.size() ? parts[end].begin : leaf.size() / size;
    REGROUP_RETURN_IF_ERROR(kernels_.harvest(
        {pieces + begin, end - begin, leaf.data() + first * size, last - first, weight}, dtype_,
        stream_.stream()));
    first = last;
    begin = std::max<std::size_t>(end, 1);
  }
  return {};
}

std::string why_not_on_device(int number) {
  const auto env = read_environment();
  if (!env.ok()) return env.status().message();
  if (env->device_memory == 0) return "its job has no memory of the GPU (--device-memory)";
  const auto driver = collective::cuda::load_driver();
  if (std::string why = collective::cuda::why_not_cuda(driver, number); !why.empty()) return why;
  const auto stream = DeviceStream::open(number, nullptr, std::chrono::seconds(60));
  if (!stream.ok()) return stream.status().message();
  const auto kernels = collective::cuda::DeviceKernels::load(*driver);
  return kernels.ok() ? "" : kernels.status().message();
}

}  // namespace regroup::elastic
