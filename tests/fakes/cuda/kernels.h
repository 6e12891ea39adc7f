// Modules, and the functions of the host that stand for kernels.
#pragma once

#include <cstddef>
#include <vector>

#include "tests/fakes/cuda/context.h"
#include "tests/fakes/cuda/fake.h"

namespace regroup::fakes::cuda {

struct FunctionState {
  ContextState* context = nullptr;
  const Kernel* kernel = nullptr;
};
struct ModuleState;

// Both live as long as the process.
ModuleState* add_module(ContextState& context);
// Null if no kernel has this name.
const FunctionState* find_function(ModuleState& module, const char* name);

// Whether an H100 would take the launch.
[[nodiscard]] bool fits(const Kernel& kernel, const Grid& grid, unsigned shared_bytes);

// A kernel with copies of its parameters.
class Launch {
 public:
  Launch(const Kernel& kernel, const Grid& grid, void* const* parameters);

  void run() const;

 private:
  const Kernel* kernel_;
  Grid grid_;
  std::vector<std::vector<std::max_align_t>> parameters_;
};

}  // namespace regroup::fakes::cuda
