// Dispatch of an update to the kernel of its optimizer and element type.
#include "collective/ps/update.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

#include "collective/reduce/half.h"
#include "collective/reduce/optimizer_kernels.h"

namespace regroup::collective::ps {
namespace {

// Integers wrap.
template <class T, class Add>
void add(std::byte* values, const std::byte* gradient, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    Add value{}, other{};
    std::memcpy(&value, values + i * sizeof(T), sizeof(T));
    std::memcpy(&other, gradient + i * sizeof(T), sizeof(T));
    value = static_cast<Add>(value + other);
    std::memcpy(values + i * sizeof(T), &value, sizeof(T));
  }
}

}  // namespace

double power(double x, std::uint64_t n) {
  double result = 1;
  for (; n > 0; n >>= 1) {
    if ((n & 1) != 0) result *= x;
    x *= x;
  }
  return result;
}

Updater::Updater(const TableSpec& spec) : optimizer_(spec.optimizer), dtype_(spec.dtype) {}

void Updater::apply(const UpdateMemory& memory, std::uint64_t number,
                    const Scalars& scalars) const {
  assert(memory.count <= kMaxDim);
  switch (dtype_) {
    case Dtype::kFloat16:
    case Dtype::kBfloat16: {
      std::array<float, kMaxDim> wide;
      auto* const bytes = reinterpret_cast<std::byte*>(wide.data());
      reduce::widen(bytes, memory.values, memory.count, dtype_);
      apply_float(wide.data(), memory, number, scalars);
      reduce::narrow(memory.values, bytes, memory.count, dtype_);
      return;
    }
    case Dtype::kFloat32:
      return apply_float(reinterpret_cast<float*>(memory.values), memory, number, scalars);
    default:
      break;
  }
  if (optimizer_.kind == OptimizerKind::kAssign) {
    std::memcpy(memory.values, memory.gradient, memory.count * size_of(dtype_));
  } else if (dtype_ == Dtype::kFloat64) {
    add<double, double>(memory.values, memory.gradient, memory.count);
  } else if (dtype_ == Dtype::kInt32) {
    add<std::int32_t, std::uint32_t>(memory.values, memory.gradient, memory.count);
  } else {
    add<std::int64_t, std::uint64_t>(memory.values, memory.gradient, memory.count);
  }
}

void Updater::apply_float(float* values, const UpdateMemory& memory, std::uint64_t number,
                          const Scalars& scalars) const {
  const reduce::OptimizerKernels& kernels = reduce::best_optimizer_kernels();
  const auto* const gradient = reinterpret_cast<const float*>(memory.gradient);
  const OptimizerSpec& o = optimizer_;
  const auto single = [](double value) { return static_cast<float>(value); };
  const reduce::AdagradScalars adagrad{single(-scalars.lr), single(o.epsilon)};
  switch (o.kind) {
    case OptimizerKind::kSum:
      return add<float, float>(reinterpret_cast<std::byte*>(values), memory.gradient, memory.count);
    case OptimizerKind::kAssign:
      std::memcpy(values, gradient, memory.count * sizeof(float));
      return;
    case OptimizerKind::kSgd:
    case OptimizerKind::kMomentum: {
      const bool with = o.kind == OptimizerKind::kMomentum;
      return kernels.sgd(values, gradient, with ? memory.states[0] : nullptr, memory.count,
                         {single(-scalars.lr), with ? single(o.momentum) : 0, 1,
                          single(o.weight_decay), false, number == 1});
    }
    case OptimizerKind::kAdagrad:
      return kernels.adagrad(values, gradient, memory.states[0], memory.count, adagrad);
    case OptimizerKind::kRowAdagrad:
      return kernels.row_adagrad(values, gradient, memory.states[0], memory.count, adagrad);
    case OptimizerKind::kAdam:
    case OptimizerKind::kLazyAdam: {
      const double step_size = scalars.lr / (1 - power(o.beta1, number));
      const double correction = __builtin_sqrt(1 - power(o.beta2, number));
      return kernels.adam(
          values, gradient, memory.states[0], memory.states[1], memory.count,
          {single(1 - o.beta1), single(o.beta2), single(1 - o.beta2), single(correction),
           single(o.epsilon), single(-step_size), single(o.weight_decay), 1});
    }
    case OptimizerKind::kFtrl:
      return kernels.ftrl(values, gradient, memory.states[0], memory.states[1], memory.count,
                          {single(scalars.lr), single(o.beta), single(o.l1), single(o.l2)});
  }
}

}  // namespace regroup::collective::ps
