// Two robust mutexes. With `writing` alone a server that has much to do would lock it again before
// a waiting process has woken up.
#include "collective/ps/shard_pause.h"

#include <utility>

#include "collective/ps/shard_lock.h"
#include "collective/ps/store_layout.h"

namespace regroup::collective::ps {
namespace {

void unlock_both(StoreHeader& header) {
  ::pthread_mutex_unlock(&header.writing);
  ::pthread_mutex_unlock(&header.turn);
}

}  // namespace

WriteTurn::WriteTurn(const StoreMemory& memory) : memory_(memory) {
  StoreHeader& header = header_of(memory);
  lock_robust(header.turn);
  lock_robust(header.writing);
  ::pthread_mutex_unlock(&header.turn);
  header.unsettled.store(1, std::memory_order_relaxed);
}

WriteTurn::~WriteTurn() { ::pthread_mutex_unlock(&header_of(memory_).writing); }

void WriteTurn::settle() { header_of(memory_).unsettled.store(0, std::memory_order_release); }

base::Result<ShardPause> ShardPause::take(const StoreMemory& memory, base::TimePoint deadline) {
  StoreHeader& header = header_of(memory);
  const auto late = [] {
    return base::deadline_exceeded("store: its server does not end the push that it applies");
  };
  if (!lock_robust_until(header.turn, deadline)) return late();
  if (!lock_robust_until(header.writing, deadline)) {
    ::pthread_mutex_unlock(&header.turn);
    return late();
  }
  if (header.unsettled.load(std::memory_order_acquire) == 0) return ShardPause(memory);
  unlock_both(header);
  return base::unavailable("store: its server has died, and the next one has not applied the log");
}

ShardPause::ShardPause(ShardPause&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)) {}

ShardPause::~ShardPause() {
  if (memory_ != nullptr) unlock_both(header_of(*memory_));
}

}  // namespace regroup::collective::ps
