// The robust mutex of a store's header, and robust mutexes in general.
#include "collective/ps/shard_lock.h"

#include <fmt/format.h>
#include <pthread.h>

#include <cerrno>
#include <ctime>
#include <utility>

#include "collective/ps/store_layout.h"

namespace regroup::collective::ps {
namespace {

timespec on_clock(base::TimePoint at) {
  const auto since = at.time_since_epoch().count();
  return {.tv_sec = since / 1'000'000'000, .tv_nsec = since % 1'000'000'000};
}

}  // namespace

base::Result<ShardLock> ShardLock::acquire(const StoreMemory& memory, base::TimePoint deadline) {
  pthread_mutex_t* const mutex = &header_of(memory).writer;
  const timespec until = on_clock(deadline);
  const int error = ::pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &until);
  if (error == ETIMEDOUT) {
    return base::deadline_exceeded(
        "store: its writer still lives; a successor takes over when that thread has ended");
  }
  if (error != 0 && error != EOWNERDEAD)
    return base::system_error("pthread_mutex_clocklock", "store", error);
  ShardLock lock(mutex);
  if (error == EOWNERDEAD) {
    ::pthread_mutex_consistent(mutex);
    lock.inherited_ = Inherited::kFromTheDead;
  }
  return lock;
}

ShardLock::ShardLock(ShardLock&& other) noexcept
    : mutex_(std::exchange(other.mutex_, nullptr)), inherited_(other.inherited_) {}

ShardLock::~ShardLock() {
  if (mutex_ != nullptr) ::pthread_mutex_unlock(mutex_);
}

void init_robust(pthread_mutex_t& mutex) {
  pthread_mutexattr_t attributes;
  ::pthread_mutexattr_init(&attributes);
  ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  ::pthread_mutex_init(&mutex, &attributes);
  ::pthread_mutexattr_destroy(&attributes);
}
bool try_lock_robust(pthread_mutex_t& mutex) {
  const int error = ::pthread_mutex_trylock(&mutex);
  if (error == EOWNERDEAD) ::pthread_mutex_consistent(&mutex);
  return error == 0 || error == EOWNERDEAD;
}
void lock_robust(pthread_mutex_t& mutex) {
  if (::pthread_mutex_lock(&mutex) == EOWNERDEAD) ::pthread_mutex_consistent(&mutex);
}
bool lock_robust_until(pthread_mutex_t& mutex, base::TimePoint deadline) {
  const timespec until = on_clock(deadline);
  const int error = ::pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &until);
  if (error == EOWNERDEAD) ::pthread_mutex_consistent(&mutex);
  return error == 0 || error == EOWNERDEAD;
}

}  // namespace regroup::collective::ps
