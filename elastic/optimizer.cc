// Tensors are processed in blocks that stay in the L1 cache between the arithmetic and the copy for
// a checkpoint.
#include "regroup/optimizer.h"
#include "base/status.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "collective/reduce/optimizer_kernels.h"
#include "collective/reduce/publish.h"

namespace regroup::elastic {
namespace {

using base::Status;
using collective::reduce::AdamScalars, collective::reduce::best_optimizer_kernels,
    collective::reduce::OptimizerKernels, collective::reduce::SgdScalars;

constexpr std::size_t kBlock = 1024;  // elements: four arrays of 4 KiB
// With a copy: small enough that the processor computes a block while it stores the previous
// one.
constexpr std::size_t kSavedBlock = 64;

// Copies the part of elements [at, at + count) that belongs to the copy.
void save(const OptimizerKernels& kernels, const Stepped& tensor, std::size_t at,
          std::size_t count) {
  const std::size_t from = std::max(at, tensor.begin);
  const std::size_t to = std::min(at + count, tensor.begin + tensor.copy.size());
  if (from >= to) return;
  kernels.stream(tensor.copy.data() + (from - tensor.begin), tensor.values.data() + from,
                 to - from);
}

std::size_t block_of(std::initializer_list<const Stepped*> tensors) {
  const bool saved =
      std::ranges::any_of(tensors, [](const Stepped* one) { return !one->copy.empty(); });
  return saved ? kSavedBlock : kBlock;
}

Status check(const char* what, const Stepped& tensor, std::size_t elements) {
  const std::size_t size = tensor.values.size();
  const bool copy_fits = tensor.begin <= size && tensor.copy.size() <= size - tensor.begin;
  if (size == elements && copy_fits) return {};
  return base::invalid_argument(fmt::format(
      "optimizer: {} of {} elements, with a copy of {} from element {} on, for {} gradients", what,
      size, tensor.copy.size(), tensor.begin, elements));
}

}  // namespace

Status sgd_step(Stepped parameter, std::span<const float> gradient, Stepped momentum, bool first,
                const SgdOptions& options) {
  const std::size_t elements = gradient.size();
  REGROUP_RETURN_IF_ERROR(check("parameter", parameter, elements));
  const bool with_momentum = options.momentum != 0;
  REGROUP_RETURN_IF_ERROR(check("momentum", momentum, with_momentum ? elements : 0));
  if (options.nesterov && (!with_momentum || options.dampening != 0))
    return base::invalid_argument("optimizer: nesterov requires a momentum > 0 and dampening 0");
  const SgdScalars scalars{static_cast<float>(-options.lr),
                           static_cast<float>(options.momentum),
                           first ? 1 : static_cast<float>(1 - options.dampening),
                           static_cast<float>(options.weight_decay),
                           options.nesterov,
                           first};
  const OptimizerKernels& kernels = best_optimizer_kernels();
  const std::size_t block = block_of({&parameter, &momentum});
  for (std::size_t at = 0; at < elements; at += block) {
    const std::size_t count = std::min(block, elements - at);
    float* const buffer = with_momentum ? momentum.values.data() + at : nullptr;
    kernels.sgd(parameter.values.data() + at, gradient.data() + at, buffer, count, scalars);
    save(kernels, parameter, at, count);
    if (with_momentum) save(kernels, momentum, at, count);
  }
  collective::reduce::complete_stores();
  return {};
}

Status adam_step(Stepped parameter, std::span<const float> gradient, Stepped first, Stepped second,
                 std::uint64_t step, const AdamOptions& options) {
  const std::size_t elements = gradient.size();
  REGROUP_RETURN_IF_ERROR(check("parameter", parameter, elements));
  REGROUP_RETURN_IF_ERROR(check("first moment", first, elements));
  REGROUP_RETURN_IF_ERROR(check("second moment", second, elements));
  if (step == 0) return base::invalid_argument("optimizer: expected a step >= 1 of Adam, got 0");
  const auto number = static_cast<double>(step);
  const double step_size = options.lr / (1 - std::pow(options.beta1, number));
  const double correction = std::sqrt(1 - std::pow(options.beta2, number));
  const AdamScalars scalars{
      static_cast<float>(1 - options.beta1),
      static_cast<float>(options.beta2),
      static_cast<float>(1 - options.beta2),
      static_cast<float>(correction),
      static_cast<float>(options.epsilon),
      static_cast<float>(-step_size),
      options.decoupled ? 0 : static_cast<float>(options.weight_decay),
      options.decoupled ? static_cast<float>(1 - options.lr * options.weight_decay) : 1,
  };
  const OptimizerKernels& kernels = best_optimizer_kernels();
  const std::size_t block = block_of({&parameter, &first, &second});
  for (std::size_t at = 0; at < elements; at += block) {
    const std::size_t count = std::min(block, elements - at);
    kernels.adam(parameter.values.data() + at, gradient.data() + at, first.values.data() + at,
                 second.values.data() + at, count, scalars);
    save(kernels, parameter, at, count);
    save(kernels, first, at, count);
    save(kernels, second, at, count);
  }
  collective::reduce::complete_stores();
  return {};
}

}  // namespace regroup::elastic
