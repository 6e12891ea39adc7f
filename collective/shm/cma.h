// Cross-memory attach (CMA): reads the memory of another process of this host with a single copy,
// by process_vm_readv(). The members exchange addresses at a synchronisation point. Each read
// reports whether it came from the intended memory, so no member has to test beforehand whether the
// kernel permits it.
#pragma once

#include <atomic>
#include <cstdint>

#include "regroup/operation.h"

namespace regroup::collective::shm {

// Memory of another member and its liveness canary. In the reader's PID namespace the pid may
// belong to another process, or may have been reused; a canary exists in one process only.
struct RemoteBuffer {
  std::uint64_t address = 0;  // 0: the peers must not read it
  std::uint64_t canary_address = 0;
  std::uint64_t canary = 0;
  std::int64_t pid = 0;
};

// Fills `to` from offset `at` of `from`. Returns false, with `to` undefined, if the kernel refuses,
// the process is gone or is another one, or its member has withdrawn its canary. A stopped process
// can be read.
[[nodiscard]] bool cma_read(const RemoteBuffer& from, std::size_t at, Output to);

// A random word in private memory of this process, absent in its forked children, until it is
// withdrawn or destroyed. A read that finds the canary afterwards has read data that the member had
// not yet changed.
class LivenessCanary {
 public:
  LivenessCanary() = default;
  LivenessCanary(const LivenessCanary&) = delete;
  LivenessCanary& operator=(const LivenessCanary&) = delete;
  ~LivenessCanary();

  // Describes `data` for peers. Returns an unreadable RemoteBuffer if the canary was withdrawn or
  // there is no memory for it.
  [[nodiscard]] RemoteBuffer expose(Input data);
  // Ends all later reads. A member that gives up calls it before any exposed memory may change.
  // Cannot be undone.
  void withdraw();

 private:
  bool create();

  std::atomic<std::uint64_t>* page_ = nullptr;
  std::uint64_t canary_ = 0;
  bool withdrawn_ = false;
};

}  // namespace regroup::collective::shm
