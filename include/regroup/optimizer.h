// Optimizer steps over fp32 tensors that write a copy of their results for a checkpoint in the same
// pass, block by block, with non-temporal stores: the copy costs the stores only. Formulas and
// order of operations are torch.optim's; the bits are the same with and without a copy, and on
// every processor.
//
//   regroup::Stepped weights{.values = w}, momentum{.values = m};  // spans of float
//   const regroup::SgdOptions options{.lr = 0.1, .momentum = 0.9};
//   auto status = regroup::sgd_step(weights, gradient, momentum, /*first=*/step == 1, options);
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "regroup/status.h"

namespace regroup::elastic {

// Options of torch.optim.SGD, under its names and with its defaults.
struct SgdOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;  // needs momentum and no dampening
};
// Options of torch.optim.Adam, under its names and with its defaults; AdamW with `decoupled`, whose
// default weight_decay in PyTorch is 0.01.
struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  bool decoupled = false;  // weight decay as AdamW has it
};

// A tensor that a step changes. `copy` receives the values from element `begin` on as they are
// after the step, unless it is empty; it must not overlap them, and may be the memory of a
// SaveTarget. Non-temporal stores are used where it is aligned to 16 bytes. All memory is the
// caller's.
struct Stepped {
  std::span<float> values;
  std::span<float> copy;
  std::size_t begin = 0;
};

// One step of stochastic gradient descent: changes `parameter`, and `momentum`, by `gradient`, all
// of the same length. `momentum`: empty without momentum; `first`: its contents are undefined.
// kInvalidArgument: lengths that do not match, or contradicting options; nothing was changed. Any
// thread. Does not block. The copies are visible to other threads after a later release store of
// this one.
[[nodiscard]] base::Status sgd_step(Stepped parameter, std::span<const float> gradient,
                                    Stepped momentum, bool first, const SgdOptions& options);

// Step number `step`, from 1, of Adam or AdamW. `first`, `second`: the moments, of the parameter's
// length, zeros before step 1. Errors, threads and copies as those of sgd_step().
[[nodiscard]] base::Status adam_step(Stepped parameter, std::span<const float> gradient,
                                     Stepped first, Stepped second, std::uint64_t step,
                                     const AdamOptions& options);

}  // namespace regroup::elastic

namespace regroup {

using elastic::adam_step, elastic::AdamOptions, elastic::sgd_step, elastic::SgdOptions,
    elastic::Stepped;

}  // namespace regroup
