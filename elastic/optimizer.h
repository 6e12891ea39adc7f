// Steps of optimizers over fp32 tensors, which write a snapshot of what they computed in the same pass: past
// the cache, block by block, while the results are still in it. A snapshot so costs the stores and nothing
// else. Formulas and the order of their operations: torch.optim's; the same bits with a snapshot and without,
// and on every processor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/status.h"

namespace regroup::elastic {

struct SgdOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
};
struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  bool decoupled = false;  // weight decay as AdamW has it
};

// A tensor that a step changes, and where its snapshot goes: nowhere if `copy` is empty. The copy is of the
// values from `begin` on and overlaps none of them; where it begins at a multiple of 16 bytes it is written
// past the cache.
struct Stepped {
  std::span<float> values;
  std::span<float> copy;
  std::size_t begin = 0;
};

// One step of stochastic gradient descent. `momentum`: empty without momentum. `first`: it holds nothing yet.
// kInvalidArgument: lengths that do not fit, options that contradict. Any thread; the copies are complete for
// others after a release store by this thread that follows.
[[nodiscard]] core::Status sgd_step(Stepped parameter, std::span<const float> gradient, Stepped momentum,
                                    bool first, const SgdOptions& options);

// Step number `step`, from 1, of Adam or AdamW. `first`, `second`: the moments, zeros before step 1.
[[nodiscard]] core::Status adam_step(Stepped parameter, std::span<const float> gradient, Stepped first,
                                     Stepped second, std::uint64_t step, const AdamOptions& options);

}  // namespace regroup::elastic
