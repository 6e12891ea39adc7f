// NVIDIA's management library, loaded at run time: the properties, links and load of GPUs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/topology/machine_builder.h"

namespace regroup::topology {

// A process on a GPU, with the pid that the driver's own pid namespace gives it.
struct GpuProcess {
  unsigned pid = 0;
  std::optional<std::uint64_t> memory_used;  // bytes; empty: the driver does not say
  int busy_percent = 0;                      // of the last second
};

struct GpuSample {
  std::string uuid;
  int busy_percent = 0;
  // Bytes.
  std::uint64_t memory_used = 0;
  std::uint64_t memory_total = 0;
  double watts = 0;                   // 0: unknown
  std::vector<GpuProcess> processes;  // that compute; empty if the driver does not list them
  // Why the GPU is not healthy, "2 uncorrectable ECC errors since the driver was loaded" for one.
  std::vector<std::string> faults;
};

class Nvml {
 public:
  // Loads and initialises `library`. kUnavailable: there is no such library, or no driver.
  [[nodiscard]] static base::Result<Nvml> open(const std::string& library = "libnvidia-ml.so.1");

  Nvml(Nvml&&) noexcept;
  Nvml& operator=(Nvml&&) noexcept;
  ~Nvml();  // shuts the library down

  struct Found {
    std::vector<Gpu> gpus;
    std::vector<GpuLink> links;
    std::vector<std::string> divided;  // bus ids of GPUs in MIG mode, even without slices
  };
  // All GPUs that this process may use, and their active NVLinks as each end lists them.
  [[nodiscard]] base::Result<Found> gpus() const;

  // The present load of a GPU. kNotFound: no such GPU. Any thread.
  [[nodiscard]] base::Result<GpuSample> sample(const std::string& uuid) const;

 private:
  struct Library;
  explicit Nvml(std::unique_ptr<Library> library);
  std::unique_ptr<Library> library_;
};

}  // namespace regroup::topology
