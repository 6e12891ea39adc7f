// The arithmetic of regroup/optimizer.h and of the parameter server's optimizers over short runs of
// elements, for each instruction set.
#pragma once

#include <cstddef>
#include <span>

namespace regroup::collective::reduce {

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

struct AdagradScalars {
  float minus_lr;
  float epsilon;
};
// FTRL-Proximal (McMahan et al., KDD 2013, algorithm 1) with learning rate `alpha`.
struct FtrlScalars {
  float alpha;
  float beta;
  float l1;
  float l2;
};

struct OptimizerKernels {
  const char* name;
  bool (*usable)();
  // `momentum` may be null.
  void (*sgd)(float* parameter, const float* gradient, float* momentum, std::size_t count,
              SgdScalars by);
  void (*adam)(float* parameter, const float* gradient, float* first, float* second,
               std::size_t count, AdamScalars by);
  // `sums`: of the squared gradients, one per element.
  void (*adagrad)(float* parameter, const float* gradient, float* sums, std::size_t count,
                  AdagradScalars by);
  // `sum`: of the means of the squared gradients, one for all `count` > 0 elements. Squares are
  // added up in 16 partial sums, element i in sum i % 16, and these in a tree.
  void (*row_adagrad)(float* parameter, const float* gradient, float* sum, std::size_t count,
                      AdagradScalars by);
  // `squares`, `z`: n and z of the paper.
  void (*ftrl)(float* parameter, const float* gradient, float* squares, float* z, std::size_t count,
               FtrlScalars by);
  // Copies with non-temporal stores, in whole cache lines if `to` is aligned to 64 bytes. Visible
  // to other threads after complete_stores() and a release store.
  void (*stream)(float* to, const float* from, std::size_t count);
};
[[nodiscard]] std::span<const OptimizerKernels>
all_optimizer_kernels();  // best first; the last is usable everywhere
[[nodiscard]] const OptimizerKernels& best_optimizer_kernels();

}  // namespace regroup::collective::reduce
