// First fit, so that what is in use stays at the beginning. Pages are reserved when they are used
// for the first time: an access to a page that the machine cannot supply would be a signal.
#include "collective/group/heap.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "base/memory_limit.h"
#include "shmem/arena_tail.h"

namespace regroup::collective::group {
namespace {

constexpr std::size_t kPage = 4096;

}  // namespace

Heap::Heap(std::shared_ptr<const shmem::Arena> arena, std::span<std::byte> memory)
    : arena_(std::move(arena)), memory_(memory) {
  if (memory_.empty()) return;
  free_.emplace(0, memory_.size());
  // A core dump would walk through all of it, which is mostly empty, and through the others' parts.
  const std::span<std::byte> tail = shmem::tail_of(*arena_);
  ::madvise(tail.data(), tail.size(), MADV_DONTDUMP);
}

std::shared_ptr<std::byte> Heap::allocate(std::size_t bytes) {
  if (bytes > memory_.size()) return nullptr;
  const std::size_t size = std::max<std::size_t>(1, (bytes + kPage - 1) / kPage) * kPage;
  std::unique_lock lock(mutex_);
  const auto found =
      std::ranges::find_if(free_, [size](const auto& range) { return range.second >= size; });
  if (found == free_.end() || !grow(found->first + size)) return nullptr;
  const auto [at, had] = *found;
  free_.erase(found);
  if (had > size) free_.emplace(at + size, had - size);
  lock.unlock();  // if no memory is left for the pointer's count, its deleter runs in here
  return {memory_.data() + at, [self = shared_from_this(), at = at, size](std::byte*) {
            const std::lock_guard give(self->mutex_);
            self->give_back(at, size);
          }};
}

// With mutex_ held: reserves the first `to` bytes. False: there is too little memory.
bool Heap::grow(std::size_t to) {
  if (to <= grown_) return true;
  const auto limit = base::memory_limit();
  if (limit.ok() && to - grown_ > limit->available) return false;
  // EINVAL: a kernel before 5.14.
  if (::madvise(memory_.data() + grown_, to - grown_, MADV_POPULATE_WRITE) != 0 && errno != EINVAL)
    return false;
  grown_ = to;
  return true;
}

// With mutex_ held.
void Heap::give_back(std::size_t at, std::size_t bytes) {
  auto next = free_.lower_bound(at);
  if (next != free_.end() && at + bytes == next->first) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == at) {
      before->second += bytes;
      return;
    }
  }
  free_.emplace(at, bytes);
}

}  // namespace regroup::collective::group
