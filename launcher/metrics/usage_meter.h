// Usage of the members of a node over time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "launcher/metrics/usage.h"
#include "proto/world.h"

namespace regroup::metrics {

struct UsageTarget {
  proto::MemberId member = 0;
  std::uint32_t rank = 0;
  pid_t pid = 0;                     // leader of its process group
  std::vector<std::string> cgroups;  // folders of its own control groups; empty: none
  std::vector<std::string> gpus;     // uuids of its GPUs
};

// The use of a GPU, by all of its processes and by those of one rank.
struct GpuUse {
  std::string uuid;
  int busy_percent = 0;
  // Bytes.
  std::uint64_t memory_used = 0;
  std::uint64_t memory_total = 0;
  double watts = 0;
  // By the rank's own processes. Empty: the driver does not list its processes, or lists them with
  // pids of another pid namespace.
  std::optional<int> rank_busy_percent = {};
  std::optional<std::uint64_t> rank_memory_used = {};  // bytes
  std::vector<std::string> faults = {};                // why it is not healthy
};

// A process on a GPU, as the driver lists it.
struct GpuProcess {
  pid_t pid = 0;
  std::optional<std::uint64_t> memory_used;  // bytes; empty: unknown
  int busy_percent = 0;
};

struct GpuReading {
  GpuUse use;
  std::vector<GpuProcess> processes;
};

struct UsageSample {
  UsageTarget of;
  Usage usage;
  double cpus = 0;  // average number of busy CPUs since the previous sample; 0 in the first
  std::vector<GpuUse> gpus;
  std::string host = {};  // "": unknown
};

class UsageMeter {
 public:
  using GpuReader = std::function<base::Result<GpuReading>(const std::string& uuid)>;
  // `read_gpu`: empty on machines without GPUs. `root` replaces "/" in tests.
  explicit UsageMeter(GpuReader read_gpu = {}, std::string root = "")
      : read_gpu_(std::move(read_gpu)), root_(std::move(root)) {}

  // Samples living members. Uses the values of control groups if available, else those of /proc.
  [[nodiscard]] std::vector<UsageSample> sample(const std::vector<UsageTarget>& targets,
                                                base::TimePoint now);

 private:
  struct Before {
    base::TimePoint at;
    double cpu_seconds = 0;
  };

  GpuReader read_gpu_;
  std::string root_;
  std::map<proto::MemberId, Before> before_;
};

}  // namespace regroup::metrics
