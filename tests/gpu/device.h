// The CUDA runtime for gpu_kernels: calls whose errors end the program, memory, launches.
#pragma once

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

namespace regroup::gpu {

[[noreturn]] inline void stop(const std::string& why) {
  std::fprintf(stderr, "gpu_kernels: %s\n", why.c_str());
  std::exit(2);
}

// Ends the program with CUDA's own words if `error` is one.
inline void check(cudaError_t error, const char* call) {
  if (error != cudaSuccess) stop(fmt::format("{}: {}", call, cudaGetErrorString(error)));
}

// Memory of the device, aligned to 256 bytes.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes) : bytes_(bytes) {
    check(cudaMalloc(&data_, bytes), "cudaMalloc");
  }
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  [[nodiscard]] char* at(std::size_t offset) const { return static_cast<char*>(data_) + offset; }
  [[nodiscard]] std::size_t size() const { return bytes_; }

 private:
  void* data_ = nullptr;
  const std::size_t bytes_;
};

// Launches `entry` with one parameter, on the stream of the whole program; does not wait.
template <class Arguments>
void launch(const void* entry, unsigned blocks, unsigned threads, Arguments arguments) {
  void* parameters[] = {&arguments};
  check(cudaLaunchKernel(entry, dim3(blocks), dim3(threads), parameters, 0, nullptr),
        "cudaLaunchKernel");
}

inline void synchronize() { check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }
inline void upload(void* to, const void* from, std::size_t bytes) {
  check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "cudaMemcpy to the device");
}
inline void download(void* to, const void* from, std::size_t bytes) {
  check(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy from the device");
}

}  // namespace regroup::gpu
