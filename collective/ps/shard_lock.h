// The lock of a store: a robust mutex in its header. Its holder is the only writer of the store on
// this host; the kernel hands it on exactly when its holder's thread is dead, so no takeover races
// with an owner that still writes.
#pragma once

#include "base/clock.h"
#include "base/status.h"
#include "collective/ps/segment.h"

namespace regroup::collective::ps {

// A robust mutex that processes share.
void init_robust(pthread_mutex_t& mutex);
// Tries to lock it; the calling thread has it if true, also after its last holder has died.
[[nodiscard]] bool try_lock_robust(pthread_mutex_t& mutex);
// Locks it, also after its last holder has died. Blocks.
void lock_robust(pthread_mutex_t& mutex);
// The same; false: another thread holds it until `deadline`.
[[nodiscard]] bool lock_robust_until(pthread_mutex_t& mutex, base::TimePoint deadline);

class ShardLock {
 public:
  enum class Inherited { kNothing, kFromTheDead };

  // Locks the store in `memory`, which must outlive the lock and is mapped for writing. The calling
  // thread stands for the writer: it must be the one that changes the store, and the one that
  // destroys the lock. kDeadlineExceeded: another thread holds it until `deadline`.
  [[nodiscard]] static base::Result<ShardLock> acquire(const StoreMemory& memory,
                                                       base::TimePoint deadline);
  ShardLock(ShardLock&& other) noexcept;
  ShardLock& operator=(ShardLock&&) = delete;
  ~ShardLock();

  // kFromTheDead: the last writer died with the lock.
  [[nodiscard]] Inherited inherited() const { return inherited_; }

 private:
  explicit ShardLock(pthread_mutex_t* mutex) : mutex_(mutex) {}
  pthread_mutex_t* mutex_;
  Inherited inherited_ = Inherited::kNothing;
};

}  // namespace regroup::collective::ps
