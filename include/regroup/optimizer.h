// Optimizer steps over fp32 tensors that write a snapshot of their results in the same pass, block
// by block, with non-temporal stores: the snapshot costs the stores only. Formulas and order of
// operations are torch.optim's; the bits are the same with and without a snapshot, and on every
// processor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "regroup/status.h"

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

// A tensor that a step changes. `copy` receives the values from `begin` on, unless it is empty; it
// must not overlap them. Non-temporal stores are used where it is aligned to 16 bytes.
struct Stepped {
  std::span<float> values;
  std::span<float> copy;
  std::size_t begin = 0;
};

// One step of stochastic gradient descent. `momentum`: empty without momentum; `first`: its
// contents are undefined. kInvalidArgument: lengths that do not match, or contradicting options.
// Any thread. The copies are visible to other threads after a later release store of this one.
[[nodiscard]] base::Status sgd_step(Stepped parameter, std::span<const float> gradient,
                                    Stepped momentum, bool first, const SgdOptions& options);

// Step number `step`, from 1, of Adam or AdamW. `first`, `second`: the moments, zeros before
// step 1.
[[nodiscard]] base::Status adam_step(Stepped parameter, std::span<const float> gradient,
                                     Stepped first, Stepped second, std::uint64_t step,
                                     const AdamOptions& options);

}  // namespace regroup::elastic

namespace regroup {

using elastic::adam_step, elastic::AdamOptions, elastic::sgd_step, elastic::SgdOptions,
    elastic::Stepped;

}  // namespace regroup
