// Memory of other processes of this host, read where it is: one copy, by the kernel (process_vm_readv). Who
// may be read at which address is told in a rendezvous; a read says whether it was of that very memory, so
// that nobody needs to ask before whether it is allowed.
#pragma once

#include <atomic>
#include <cstdint>

#include "collective/operation.h"

namespace regroup::collective {

// Memory of another member, and the sign that it is that member's and still stands. A pid may be another
// process's in the reader's namespace, or by then; a sign is in one process only.
struct RemoteBuffer {
  std::uint64_t address = 0;  // 0: not to be read
  std::uint64_t canary_address = 0;
  std::uint64_t canary = 0;
  std::int64_t pid = 0;
};

// Fills `to` with what lies `at` bytes behind the beginning of `from`. False, and `to` is anything, if the
// kernel refused, the process is gone, or it is another, or its member has withdrawn (Sign). Ordinary memory
// of a process that is stopped can be read.
[[nodiscard]] bool cma_read(const RemoteBuffer& from, std::size_t at, Output to);

// Stands in ordinary memory of this process, and not of those it forks, until it is withdrawn or destroyed.
// What others read before it vanished they read while this member kept what it had announced.
class LivenessCanary {
 public:
  LivenessCanary() = default;
  LivenessCanary(const LivenessCanary&) = delete;
  LivenessCanary& operator=(const LivenessCanary&) = delete;
  ~LivenessCanary();

  // For others to read; nobody can if there is no memory for the sign, or it was withdrawn.
  [[nodiscard]] RemoteBuffer expose(Input data);
  // For ever. Before any of the memory announced is changed, by a member that gave up.
  void withdraw();

 private:
  bool create();

  std::atomic<std::uint64_t>* page_ = nullptr;
  std::uint64_t canary_ = 0;
  bool withdrawn_ = false;
};

}  // namespace regroup::collective
