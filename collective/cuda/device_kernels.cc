// Grids are those that were fastest on an H200 (tests/gpu/results): for a tree a thread for each
// column; for a harvest, whose blocks each look for their first gradient, four times the blocks
// that the device holds at once.
#include "collective/cuda/device_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <string_view>

#include "collective/cuda/kernel_list.h"

namespace regroup::collective::cuda {
namespace {

using base::Result;
using base::Status;

constexpr std::uint64_t kMostBlocks = 0x7fffffff;  // of a launch
constexpr unsigned kHarvestThreads = 128;          // of a block
constexpr std::uint32_t kHarvestBlocks = 32;       // of each multiprocessor, at most

}  // namespace

Result<DeviceKernels> DeviceKernels::load(const Driver& driver,
                                          std::span<const unsigned char> image) {
  if (image.empty()) return base::unavailable("built without nvcc: there are no device kernels");
  DeviceKernels kernels(driver);
  REGROUP_RETURN_IF_ERROR(driver.status(driver.context_device(&kernels.device_), "cuCtxGetDevice"));
  int multiprocessors = 0;
  REGROUP_RETURN_IF_ERROR(
      driver.status(driver.device_attribute(&multiprocessors, DeviceAttribute::kMultiprocessorCount,
                                            kernels.device_),
                    "cuDeviceGetAttribute"));
  kernels.multiprocessors_ = std::uint32_t(std::max(multiprocessors, 1));
  Module module = nullptr;
  if (Status loaded = driver.status(driver.module_load(&module, image.data()),
                                    fmt::format("GPU {}: cuModuleLoadData", kernels.device_));
      !loaded.ok())
    return base::unavailable("the device kernels cannot be loaded: " + loaded.message());
  for (const KernelRow& row : kKernelRows) {
    Entry entry{row.name, row.elements, nullptr};
    if (Status found = driver.status(driver.module_function(&entry.function, module, row.name),
                                     fmt::format("cuModuleGetFunction({})", row.name));
        !found.ok())
      return base::unavailable("the device kernels are incomplete: " + found.message());
    kernels.entries_.push_back(entry);
  }
  return kernels;
}

Status DeviceKernels::sum(const TreePlan& plan, const TreePlan::Memory& memory, Dtype dtype, Op op,
                          Stream stream) const {
  if (plan.kernel_of(0, dtype, op) == nullptr || (op != Op::kSum && op != Op::kAvg))
    return base::invalid_argument(
        fmt::format("a sum on a GPU is a sum or an average of floats, not {} of {}", name_of(op),
                    name_of(dtype)));
  if (memory.count == 0) return {};
  for (std::size_t i = 0; i < plan.launches().size(); ++i) {
    const Entry& kernel = entry(plan.kernel_of(i, dtype, op));
    const std::uint64_t each = kernel.elements * kBlockThreads;
    const std::uint64_t blocks = std::min((memory.count + each - 1) / each, kMostBlocks);
    REGROUP_RETURN_IF_ERROR(
        launch(kernel, {blocks, kBlockThreads}, plan.arguments_of(i, memory, op), stream));
  }
  return {};
}

Status DeviceKernels::harvest(const HarvestArguments& arguments, Dtype dtype, Stream stream) const {
  if (dtype != Dtype::kFloat32 && dtype != Dtype::kFloat64)
    return base::invalid_argument(
        fmt::format("a leaf is float32 or float64, not {}", name_of(dtype)));
  if (arguments.count == 0) return {};
  const Entry& kernel =
      entry(dtype == Dtype::kFloat32 ? "regroup_harvest_float32" : "regroup_harvest_float64");
  const std::uint64_t each = kernel.elements * kHarvestThreads;
  const std::uint64_t blocks = std::min((arguments.count + each - 1) / each,
                                        std::uint64_t{multiprocessors_} * kHarvestBlocks);
  return launch(kernel, {blocks, kHarvestThreads}, arguments, stream);
}

Status DeviceKernels::product(DevicePointer sums, std::uint32_t first_round, std::uint32_t rounds,
                              Stream stream) const {
  const ProductArguments arguments{reinterpret_cast<std::uint32_t*>(sums), first_round, rounds};
  return launch(entry("regroup_product"), {multiprocessors_, kProductThreads}, arguments, stream);
}

const DeviceKernels::Entry& DeviceKernels::entry(const char* name) const {
  const auto found = std::ranges::find_if(
      entries_, [&](const Entry& entry) { return std::string_view(entry.name) == name; });
  assert(found != entries_.end());
  return *found;
}

template <class Arguments>
Status DeviceKernels::launch(const Entry& entry, Grid grid, const Arguments& arguments,
                             Stream stream) const {
  Arguments copy = arguments;  // cuLaunchKernel takes parameters by pointers to variable memory
  void* parameters[] = {&copy};
  const DriverResult result = driver_.launch(entry.function, unsigned(grid.blocks), 1, 1,
                                             grid.threads, 1, 1, 0, stream, parameters, nullptr);
  if (result == DriverResult::kSuccess) return {};
  return driver_.status(result, fmt::format("GPU {}: cuLaunchKernel({})", device_, entry.name));
}

}  // namespace regroup::collective::cuda
