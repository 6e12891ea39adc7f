// Memory of one rank that the other ranks of its host can read and write: operations on it make no
// copy in between. It lies in the tail of the group's arena.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "shmem/arena.h"

namespace regroup::collective::group {

// Thread-safe. Memory that was given back is kept for later allocations.
class Heap : public std::enable_shared_from_this<Heap> {
 public:
  // `memory`: of the tail of `arena`, used by this rank alone; empty: nothing can be allocated.
  Heap(std::shared_ptr<const shmem::Arena> arena, std::span<std::byte> memory);

  [[nodiscard]] bool empty() const { return memory_.empty(); }
  // `bytes` bytes of undefined content, at a multiple of 4,096; null if there is too little memory.
  // Valid as long as the pointer, also after the group.
  [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes);

 private:
  [[nodiscard]] bool grow(std::size_t to);
  void give_back(std::size_t at, std::size_t bytes);

  const std::shared_ptr<const shmem::Arena> arena_;
  const std::span<std::byte> memory_;

  std::mutex mutex_;                         // of all below
  std::map<std::size_t, std::size_t> free_;  // sizes by offset; two of them never touch
  std::size_t grown_ = 0;                    // bytes at the beginning that are reserved
};

}  // namespace regroup::collective::group
