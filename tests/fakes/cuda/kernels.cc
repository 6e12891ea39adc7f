// Kernels that every module of the fake has.
#include "tests/fakes/cuda/kernels.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>

#include "collective/cuda/host_kernels.h"
#include "collective/cuda/kernel_list.h"
#include "collective/cuda/product_kernel.h"
#include "tests/fakes/cuda/exports.h"
#include "tests/fakes/cuda/machine.h"

namespace regroup::fakes::cuda {

struct ModuleState {
  ContextState* context = nullptr;
  std::deque<FunctionState> functions;
};

namespace {

void store_word(const Grid&, DevicePointer at, std::uint32_t word) {
  std::atomic_ref(*reinterpret_cast<std::uint32_t*>(at)).store(word, std::memory_order_relaxed);
}

// Stores the time again and again for so many nanoseconds.
void store_time(const Grid&, DevicePointer at, std::uint64_t nanoseconds) {
  const auto now = [] {
    return std::uint64_t(std::chrono::steady_clock::now().time_since_epoch() /
                         std::chrono::nanoseconds(1));
  };
  const std::uint64_t begin = now();
  for (std::uint64_t time = begin; time - begin < nanoseconds; time = now())
    std::atomic_ref(*reinterpret_cast<std::uint64_t*>(at)).store(time, std::memory_order_relaxed);
}

template <class Arguments>
constexpr std::size_t kBytesOf[] = {sizeof(Arguments)};

// A kernel of the product, whose source is built for this processor, too.
#define REGROUP_ROW(NAME, ARGUMENTS, ...)                                          \
  {#NAME,                                                                          \
   [](const Grid& grid, const void* const* parameters) {                           \
     collective::cuda::find_host_kernel(#NAME)->run(parameters[0], grid.blocks[0], \
                                                    grid.threads[0]);              \
   },                                                                              \
   kBytesOf<collective::cuda::ARGUMENTS>, 1, collective::cuda::kBlockThreads},
constexpr Kernel kBuiltIn[] = {kernel<store_word>("store_word"), kernel<store_time>("store_time"),
                               REGROUP_KERNELS_OF_CUDA(REGROUP_ROW)};
#undef REGROUP_ROW

struct Registry {
  Registry() {
    for (const Kernel& one : kBuiltIn) kernels.push_back(&one);
  }
  std::mutex mutex;  // of both
  std::vector<const Kernel*> kernels;
  std::deque<ModuleState> modules;
};

Registry& registry() {
  static auto* all = new Registry;  // threads of the fake outlive static objects
  return *all;
}

}  // namespace

ModuleState* add_module(ContextState& context) {
  const std::lock_guard lock(registry().mutex);
  return &registry().modules.emplace_back(ModuleState{&context, {}});
}

const FunctionState* find_function(ModuleState& module, const char* name) {
  const std::lock_guard lock(registry().mutex);
  for (const Kernel* known : registry().kernels)
    if (std::strcmp(known->name, name) == 0)
      return &module.functions.emplace_back(FunctionState{module.context, known});
  return nullptr;
}

bool fits(const Kernel& kernel, const Grid& grid, unsigned shared_bytes) {
  constexpr unsigned kMostShared = 48 << 10;
  constexpr unsigned kMostBlocks[] = {0x7fffffff, 0xffff, 0xffff};
  constexpr unsigned kMostOfBlock[] = {1024, 1024, 64};
  std::uint64_t threads = 1;
  for (int i = 0; i < 3; ++i) {
    if (grid.blocks[i] == 0 || grid.blocks[i] > kMostBlocks[i]) return false;
    if (grid.threads[i] == 0 || grid.threads[i] > kMostOfBlock[i]) return false;
    threads *= grid.threads[i];
  }
  return threads <= kernel.most_threads && shared_bytes <= kMostShared;
}

Launch::Launch(const Kernel& kernel, const Grid& grid, void* const* parameters)
    : kernel_(&kernel), grid_(grid) {
  constexpr std::size_t kUnit = sizeof(std::max_align_t);
  for (std::size_t i = 0; i < kernel.parameter_count; ++i) {
    auto& copy = parameters_.emplace_back((kernel.parameter_bytes[i] + kUnit - 1) / kUnit);
    std::memcpy(copy.data(), parameters[i], kernel.parameter_bytes[i]);
  }
}

void Launch::run() const {
  const void* addresses[64] = {};
  for (std::size_t i = 0; i < parameters_.size(); ++i) addresses[i] = parameters_[i].data();
  kernel_->run(grid_, addresses);
  if (std::strcmp(kernel_->name, "regroup_product") != 0) return;
  static std::atomic<bool> first = true;
  const Settings& settings = Machine::running().settings;
  if (settings.wrong_product || (first.exchange(false) && settings.wrong_once))
    static_cast<const collective::cuda::ProductArguments*>(addresses[0])->sums[0] += 256;
}

// Of fake.h: kAddKernel.
REGROUP_FAKE_EXPORT void regroup_fake_cuda_add_kernel(const Kernel* kernel) {
  const std::lock_guard lock(registry().mutex);
  registry().kernels.push_back(kernel);
}

}  // namespace regroup::fakes::cuda
