// The allocator of a job without a resource manager. Slots are the cores on which this process may
// run, within the limits of containers, taskset and control groups.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <set>
#include <string>

#include "base/printable.h"
#include "base/status.h"
#include "launcher/alloc/allocator.h"
#include "launcher/alloc/cpu_quota.h"

namespace regroup::alloc {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Reads sysfs only once if cores have one thread each, as on most cloud machines.
std::size_t count_cores(const std::vector<int>& threads, const std::string& sysfs) {
  const std::string folder = sysfs + "/devices/system/cpu/";
  if (first_line(folder + "smt/active") != "1") return threads.size();
  std::set<std::string> cores;
  for (const int thread : threads) {
    const std::string number = std::to_string(thread);
    const std::string siblings =
        first_line(fmt::format("{}cpu{}/topology/thread_siblings_list", folder, number));
    cores.insert(siblings.empty() ? number : siblings);
  }
  return cores.size();
}

class ThisMachine final : public Allocator {
 public:
  ThisMachine(std::string sysfs, std::string cgroup_root)
      : sysfs_(std::move(sysfs)), cgroup_root_(std::move(cgroup_root)) {}

  [[nodiscard]] base::Result<Allocation> allocation() override {
    // A machine may have more cores than a cpu_set_t: the kernel refuses a set that is too small.
    for (std::size_t cores = CPU_SETSIZE; cores <= (1U << 20); cores *= 2) {
      std::vector<cpu_set_t> set(CPU_ALLOC_SIZE(cores) / sizeof(cpu_set_t));
      const std::size_t bytes = set.size() * sizeof(cpu_set_t);
      if (::sched_getaffinity(0, bytes, set.data()) == 0) return granted(set.data(), bytes);
      if (errno != EINVAL) break;
    }
    return base::system_error("sched_getaffinity", "this process", errno);
  }

 private:
  [[nodiscard]] Allocation granted(const cpu_set_t* set, std::size_t bytes) const {
    std::array<char, 256> name{};
    ::gethostname(name.data(), name.size() - 1);
    Host host{name.data(), 0, {}};
    for (std::size_t core = 0; core < bytes * 8; ++core) {
      if (CPU_ISSET_S(core, bytes, set)) host.cores.push_back(static_cast<int>(core));
    }
    host.slots = static_cast<std::uint32_t>(count_cores(host.cores, sysfs_));
    host.quota = cpu_quota(cgroup_root_);
    if (host.quota > 0) host.slots = std::min(host.slots, host.quota);
    return {1, {std::move(host)}};
  }

  std::string sysfs_, cgroup_root_;
};

}  // namespace

std::unique_ptr<Allocator> make_this_machine(std::string sysfs, std::string cgroup_root) {
  return std::make_unique<ThisMachine>(std::move(sysfs), std::move(cgroup_root));
}

std::string this_machine_text(const Host& host) {
  std::string out =
      fmt::format("{} slots={} cores={}", host.name, host.slots, fmt::join(host.cores, ","));
  if (host.quota > 0)
    out += fmt::format(" (CPU quota of its control group: {})",
                       base::counted(host.quota, "processor"));
  return out;
}

}  // namespace regroup::alloc
