// Times of work on the device by CUDA events.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "tests/gpu/device.h"
#include "tests/gpu/device_kernels.h"

namespace regroup::gpu {

struct Times {
  std::vector<double> us;

  [[nodiscard]] double quantile(double q) const {
    std::vector<double> sorted = us;
    std::ranges::sort(sorted);
    return sorted[std::min(sorted.size() - 1,
                           static_cast<std::size_t>(q * static_cast<double>(sorted.size())))];
  }
  [[nodiscard]] double p50() const { return quantile(0.5); }
};

// Runs works in turn. All of a measurement is queued behind a kernel that waits, so that no work
// waits for this processor.
class GpuTimer {
 public:
  GpuTimer() : ended_(sizeof(std::uint64_t)) {
    events_.resize(kMostEvents);
    for (cudaEvent_t& event : events_) check(cudaEventCreate(&event), "cudaEventCreate");
  }
  ~GpuTimer() {
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
  }
  GpuTimer(const GpuTimer&) = delete;
  GpuTimer& operator=(const GpuTimer&) = delete;

  // The times of each of `works` in `rounds` rounds, after `warm` that do not count.
  std::vector<Times> measure(const std::vector<std::function<void()>>& works, std::size_t rounds,
                             std::size_t warm = 2) {
    const std::size_t all = rounds + warm;
    if (all * works.size() + 1 > kMostEvents) stop("too many rounds of a measurement");
    while (true) {
      launch(kDelayEntry, 1, 1,
             DelayArguments{delay_, reinterpret_cast<std::uint64_t*>(ended_.at(0)), 0});
      std::size_t next = 0;
      record(next++);
      for (std::size_t round = 0; round < all; ++round) {
        for (const auto& work : works) {
          work();
          record(next++);
        }
      }
      const cudaError_t first = cudaEventQuery(events_[0]);
      if (first != cudaErrorNotReady) check(first, "cudaEventQuery");
      check(cudaEventSynchronize(events_[next - 1]), "cudaEventSynchronize");
      if (first == cudaErrorNotReady || delay_ >= kLongestDelay)
        return times(works.size(), all, warm);
      delay_ *= 2;  // the queue was too short: the first works waited for this processor
    }
  }

 private:
  static constexpr std::size_t kMostEvents = 512;
  static constexpr std::uint64_t kLongestDelay = 20'000'000;

  void record(std::size_t event) {
    check(cudaEventRecord(events_[event], nullptr), "cudaEventRecord");
  }
  std::vector<Times> times(std::size_t works, std::size_t rounds, std::size_t warm) {
    std::vector<Times> out(works);
    for (std::size_t i = warm * works; i < rounds * works; ++i) {
      float ms = 0;
      check(cudaEventElapsedTime(&ms, events_[i], events_[i + 1]), "cudaEventElapsedTime");
      out[i % works].us.push_back(static_cast<double>(ms) * 1e3);
    }
    return out;
  }

  std::vector<cudaEvent_t> events_;
  const DeviceMemory ended_;
  std::uint64_t delay_ = 500'000;  // nanoseconds
};

}  // namespace regroup::gpu
