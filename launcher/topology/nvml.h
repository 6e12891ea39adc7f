// NVIDIA's management library, loaded at run time: what GPUs are, how they are linked, how busy
// they are.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/topology/machine_builder.h"

namespace regroup::topology {

struct GpuSample {
  std::string uuid;
  int busy_percent = 0;
  std::uint64_t memory_used = 0, memory_total = 0;  // bytes
  double watts = 0;                                 // 0: not known
};

class Nvml {
 public:
  // Loads and initialises `library`. kUnavailable: it is not there, or there is no driver.
  [[nodiscard]] static base::Result<Nvml> open(const std::string& library = "libnvidia-ml.so.1");

  Nvml(Nvml&&) noexcept;
  Nvml& operator=(Nvml&&) noexcept;
  ~Nvml();  // shuts it down

  struct Found {
    std::vector<Gpu> gpus;
    std::vector<GpuLink> links;
    std::vector<std::string> divided;  // bus ids of those in MIG mode, also without a slice
  };
  // All GPUs that this process may see, and their active NVLinks as each end lists them.
  [[nodiscard]] base::Result<Found> gpus() const;

  // kNotFound: no such GPU. Any thread.
  [[nodiscard]] base::Result<GpuSample> sample(const std::string& uuid) const;

 private:
  struct Library;
  explicit Nvml(std::unique_ptr<Library> library);
  std::unique_ptr<Library> library_;
};

}  // namespace regroup::topology
