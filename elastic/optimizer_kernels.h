// The arithmetic of regroup/optimizer.h over short runs of elements, for each instruction set.
#pragma once

#include <cstddef>
#include <span>

namespace regroup::elastic {

struct SgdScalars {
  float minus_lr;
  float momentum;
  float new_share;  // 1 - dampening
  float weight_decay;
  bool nesterov;
  bool first;
};
struct AdamScalars {
  float new_first;
  float keep_second;
  float new_second;
  float correction;
  float epsilon;
  float minus_step_size;
  float weight_decay;  // added to the gradient
  float shrink;        // of the parameter before the step: 1 - lr * weight decay of AdamW, else 1
};

struct Kernels {
  const char* name;
  bool (*usable)();
  // `momentum` may be null.
  void (*sgd)(float* parameter, const float* gradient, float* momentum, std::size_t count,
              SgdScalars by);
  void (*adam)(float* parameter, const float* gradient, float* first, float* second,
               std::size_t count, AdamScalars by);
  // Copies with non-temporal stores, in whole cache lines if `to` is aligned to 64 bytes. Visible
  // to other threads after collective::reduce::complete_stores() and a release store.
  void (*stream)(float* to, const float* from, std::size_t count);
};
[[nodiscard]] std::span<const Kernels> all_kernels();  // best first; the last is usable everywhere
[[nodiscard]] const Kernels& best_kernels();

}  // namespace regroup::elastic
