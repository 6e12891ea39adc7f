// The allocator of a job without a resource manager: slots are the cores this process may run on, as
// containers, taskset and cgroups leave them.
#include <sched.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "launcher/alloc/allocator.h"

namespace regroup::launcher {
namespace {

class ThisMachine final : public Allocator {
 public:
  [[nodiscard]] core::Result<Allocation> allocation() override {
    // A machine may have more cores than a cpu_set_t: the kernel refuses a set that is too small.
    for (std::size_t cores = CPU_SETSIZE; cores <= (1U << 20); cores *= 2) {
      std::vector<cpu_set_t> set(CPU_ALLOC_SIZE(cores) / sizeof(cpu_set_t));
      const std::size_t bytes = set.size() * sizeof(cpu_set_t);
      if (::sched_getaffinity(0, bytes, set.data()) == 0) return granted(set.data(), bytes);
      if (errno != EINVAL) break;
    }
    return core::system_error("sched_getaffinity", "this process", errno);
  }

 private:
  static Allocation granted(const cpu_set_t* set, std::size_t bytes) {
    std::array<char, 256> name{};
    ::gethostname(name.data(), name.size() - 1);
    Host host{name.data(), 0, {}};
    for (std::size_t core = 0; core < bytes * 8; ++core) {
      if (CPU_ISSET_S(core, bytes, set)) host.cores.push_back(static_cast<int>(core));
    }
    host.slots = static_cast<std::uint32_t>(host.cores.size());
    return {1, {std::move(host)}};
  }
};

}  // namespace

std::unique_ptr<Allocator> make_this_machine() { return std::make_unique<ThisMachine>(); }

}  // namespace regroup::launcher
