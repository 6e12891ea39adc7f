// Allocator: the interface to whatever provides hosts (this machine, Slurm, Kubernetes, ...).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace regroup::alloc {

struct Host {
  std::string name;
  // Number of members that may run on it: its cores, unless the allocator says otherwise.
  std::uint32_t slots = 1;
  std::vector<int> cores;              // operating system numbers; empty: unknown
  std::vector<std::string> gpus = {};  // local numbers or UUIDs; empty: none, or unknown
  std::uint32_t gpu_count = 0;         // known even if `gpus` is not
  std::string address = {};            // its name for the allocator's start command; "": `name`
  bool here = false;                   // this process runs on it
  std::uint32_t quota = 0;             // number of CPUs whose time it may use; 0: no limit
  bool operator==(const Host&) const = default;
};

// The granted hosts. `number` grows with each change.
struct Allocation {
  std::uint64_t number = 1;
  std::vector<Host> hosts;

  [[nodiscard]] std::uint32_t slots() const {
    std::uint32_t sum = 0;
    for (const Host& host : hosts) sum += host.slots;
    return sum;
  }
};

// Used by one thread.
class Allocator {
 public:
  virtual ~Allocator() = default;
  // The hosts that the job may use now. Does not block.
  [[nodiscard]] virtual base::Result<Allocation> allocation() = 0;
};

// Grants this machine alone: one slot per core of which the affinity mask of this process has a
// hardware thread, but at most cpu_quota(`cgroup_root`). Host::cores lists the hardware threads.
// `sysfs` says which of them share a core.
[[nodiscard]] std::unique_ptr<Allocator> make_this_machine(std::string sysfs = "/sys",
                                                           std::string cgroup_root = "");

// "node1 slots=2 cores=0,1,2,3", followed by the reason for the number of slots.
[[nodiscard]] std::string this_machine_text(const Host& host);

// A fake for tests; grants the allocation that its constructor gets.
class FakeAllocator final : public Allocator {
 public:
  explicit FakeAllocator(Allocation grant) : grant_(std::move(grant)) {}
  [[nodiscard]] base::Result<Allocation> allocation() override { return grant_; }
  void change(std::vector<Host> hosts) { grant_ = {grant_.number + 1, std::move(hosts)}; }

 private:
  Allocation grant_;
};

}  // namespace regroup::alloc
