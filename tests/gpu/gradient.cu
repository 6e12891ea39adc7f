// The kernel of gradient.h: each thread has one weight, so that no order of additions is left to
// chance.
#include "tests/gpu/gradient.h"

#include <cuda_runtime.h>

#include <cstring>
#include <stdexcept>
#include <string>

namespace regroup::gpu {
namespace {

constexpr int kTerms = 64;  // of each weight's sum
constexpr int kThreads = 256;

void check(cudaError_t error, const char* call) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(error));
}

__device__ float pseudo_random(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return static_cast<float>((x ^ (x >> 31)) >> 40) / 16777216.0F - 0.5F;
}

// Of the loss sum_k (w x_k - y_k)^2 / 2 over samples of this step and leaf.
__global__ void gradient(const float* weights, float* out, std::size_t count, std::uint64_t seed) {
  const std::size_t i = blockIdx.x * std::size_t{kThreads} + threadIdx.x;
  if (i >= count) return;
  float sum = 0.0F;
  for (int k = 0; k < kTerms; ++k) {
    const float x = pseudo_random(seed + i * kTerms + k), y = pseudo_random(~seed + i * kTerms + k);
    sum += (weights[i] * x - y) * x;
  }
  out[i] = sum / kTerms;
}

// Rounded as on the host, where nothing is fused.
__global__ void subtract(float* weights, const float* sum, float rate, std::size_t count) {
  const std::size_t i = blockIdx.x * std::size_t{kThreads} + threadIdx.x;
  if (i < count) weights[i] = __fsub_rn(weights[i], __fmul_rn(rate, sum[i]));
}

unsigned blocks_of(std::size_t count) {
  return static_cast<unsigned>((count + kThreads - 1) / kThreads);
}

}  // namespace

Gradient::Gradient(std::size_t weights, std::size_t held) : count_(weights) {
  check(cudaSetDevice(0), "cudaSetDevice");
  check(cudaMalloc(&weights_, count_ * sizeof(float)), "cudaMalloc of weights");
  check(cudaMalloc(&out_, count_ * sizeof(float)), "cudaMalloc of a gradient");
  check(cudaMallocHost(&pinned_, count_ * sizeof(float)), "cudaMallocHost");
  if (held == 0) return;
  check(cudaMalloc(&held_, held), "cudaMalloc of what is held");
  check(cudaMemset(held_, 1, held), "cudaMemset");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

Gradient::~Gradient() {
  cudaFree(held_);
  cudaFreeHost(pinned_);
  cudaFree(out_);
  cudaFree(weights_);
}

void Gradient::set_weights(const float* weights) {
  check(cudaMemcpy(weights_, weights, count_ * sizeof(float), cudaMemcpyHostToDevice),
        "cudaMemcpy");
}

void Gradient::compute(std::uint64_t step, std::uint32_t leaf, float* out) {
  compute_there(step, leaf, out_);
  check(cudaMemcpy(pinned_, out_, count_ * sizeof(float), cudaMemcpyDeviceToHost), "cudaMemcpy");
  std::memcpy(out, pinned_, count_ * sizeof(float));
}

void Gradient::compute_there(std::uint64_t step, std::uint32_t leaf, float* out) {
  gradient<<<blocks_of(count_), kThreads>>>(weights_, out, count_,
                                            (step << 40) ^ (std::uint64_t{leaf} << 32));
  check(cudaGetLastError(), "a kernel");
}

void Gradient::apply(const float* sum, float rate, float* weights) {
  subtract<<<blocks_of(count_), kThreads>>>(weights_, sum, rate, count_);
  check(cudaGetLastError(), "a kernel");
  check(cudaMemcpy(pinned_, weights_, count_ * sizeof(float), cudaMemcpyDeviceToHost),
        "cudaMemcpy");
  std::memcpy(weights, pinned_, count_ * sizeof(float));
}

}  // namespace regroup::gpu
