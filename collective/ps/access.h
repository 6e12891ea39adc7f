// How the store changes shared memory. The parts of the store are templates over this policy:
// tests kill the writer at every call (tests/collective/ps/crash_test.cc), even in the middle of a
// write(), and attach a successor.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace regroup::collective::ps {

using Word = std::atomic<std::uint64_t>;

// As shipped.
struct RealAccess {
  // Copies bytes that nobody reads before a later publish() of a word that leads to them.
  static void write(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
  static void clear(void* to, std::size_t bytes) { std::memset(to, 0, bytes); }
  // Makes all earlier writes of this thread visible to readers and to a successor that see `value`.
  static void publish(Word& word, std::uint64_t value) {
    word.store(value, std::memory_order_release);
  }
  // Before other changes of memory that no word leads to, such as an optimizer's in a free slot.
  static void point() {}
};

}  // namespace regroup::collective::ps
