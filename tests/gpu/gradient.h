// A gradient that a GPU computes, and memory that it holds meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>

namespace regroup::gpu {

// On device 0 of those that this process sees; C++17, for CUDA compilers that know no more. Errors
// throw std::runtime_error with CUDA's own words.
class Gradient {
 public:
  // Takes `held` bytes of the device's memory beside what `weights` need, and writes to each of
  // them.
  Gradient(std::size_t weights, std::size_t held);
  ~Gradient();
  Gradient(const Gradient&) = delete;
  Gradient& operator=(const Gradient&) = delete;

  void set_weights(const float* weights);
  // Of the last weights set; the same bits for the same weights, step and leaf, on each GPU of one
  // kind.
  void compute(std::uint64_t step, std::uint32_t leaf, float* out);
  // The same, to memory of the device, by work that this queues on the default stream.
  void compute_there(std::uint64_t step, std::uint32_t leaf, float* out);
  // Subtracts `rate` times `sum`, in memory of the device, from the weights there, behind the work
  // on the default stream, and copies them to `weights`.
  void apply(const float* sum, float rate, float* weights);

 private:
  float *weights_ = nullptr, *out_ = nullptr, *pinned_ = nullptr;
  void* held_ = nullptr;
  std::size_t count_;
};

}  // namespace regroup::gpu
