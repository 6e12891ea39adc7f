// Runs shipped lock-free code one shared access at a time. A fiber is a plain function of what it
// has read: it is run again from the start of its round with its recorded results, makes one new
// access, and is left by an exception at the next. So a state is plain data (memory + what each
// fiber has read), can be copied, hashed and kept in a queue.
//
// Memory is sequentially consistent or, with `tso`, that of x86: a store weaker than seq_cst waits
// in a buffer of its fiber until the scheduler, a read-modify-write, a seq_cst store or a system
// call drains it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"

namespace regroup::model {

// What a fiber keeps from round to round.
struct Local {
  std::uint32_t pc = 0, generation = 0, position = 0, count = 0;
};

struct BufferedStore {
  std::uint32_t offset = 0, size = 0;
  std::uint64_t value = 0;
};

inline constexpr std::uint32_t kAwake = ~0U;

struct Fiber {
  Local local;
  std::vector<std::uint64_t> results;  // of its accesses in this round
  std::vector<BufferedStore> stores;   // oldest first; empty unless `tso`
  std::uint32_t asleep_on = kAwake;    // offset of a word in memory
  bool finished = false;
  bool dead = false;
};

enum class Access : std::uint8_t { kLoad, kStore, kSwap, kAdd, kWait, kWake };

class Execution {
 public:
  struct Yield {};    // leaves the fiber at its next access
  struct Blocked {};  // what it waits for is not there: this is no step

  // Lets fiber `self` of `fibers` make its next access to `memory`. Installs itself for this
  // thread.
  Execution(std::span<std::byte> memory, std::vector<Fiber>& fibers, std::size_t self, bool tso,
            bool tell);
  ~Execution();
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;
  // The one that runs on this thread; nullptr outside of steps, where memory is read and written
  // plainly.
  static Execution* current();

  // `value`: what to store or add, `expected`: of a swap or a wait. A swap returns what was there
  // before.
  std::uint64_t access(Access kind, const void* cell, std::uint32_t size, std::uint64_t value,
                       std::uint64_t expected, std::memory_order order);
  void await(const std::function<bool()>& fact);  // an event that comes from outside of memory
  // Bookkeeping of the test, once, together with the step.
  void note(const std::function<void()>& ghost);
  void begin_round() { next_ = 0, since_wait_ = 0, is_wait_loop_ = false; }
  // This round is one call of wait_until(): each turn of its loop begins like the first, so what
  // was read in earlier turns is forgotten. (With relax() and now() constant the loop keeps
  // nothing.)
  void round_is_wait_loop() { is_wait_loop_ = true; }
  void drain_one();

  std::string failure;  // set by notes
  std::string label;    // of the access made, if `tell`

 private:
  struct Plainly;  // while it lives, accesses bypass the execution
  [[nodiscard]] std::uint64_t read(std::uint32_t offset, std::uint32_t size) const;
  std::uint64_t perform(Access kind, std::uint32_t offset, std::uint32_t size, std::uint64_t value,
                        std::uint64_t expected, std::memory_order order);
  void write(const BufferedStore& store);
  void drain();
  Fiber& me() { return fibers_[self_]; }
  [[nodiscard]] const Fiber& me() const { return fibers_[self_]; }

  const std::span<std::byte> memory_;
  std::vector<Fiber>& fibers_;
  const std::size_t self_;
  const bool tso_, tell_;
  std::size_t next_ = 0;  // result to replay
  bool moved_ = false;
  bool is_wait_loop_ = false;
  unsigned since_wait_ = 0;  // accesses since the last wait, itself included; 0: none
};

// "+3 (8 bytes): open(g1, p256)": how a value is shown in a trace.
[[nodiscard]] std::string show(std::uint32_t size, std::uint64_t value);

// The policy under which shmem/doorbell.h and shmem/state_word.h are run.
struct Policy {
  template <class T>
  class Atomic {
   public:
    Atomic(T value = {}) : value_(value) {}  // NOLINT(google-explicit-constructor): as std::atomic
    T load(std::memory_order order = std::memory_order_seq_cst) const {
      return go(Access::kLoad, 0, 0, order);
    }
    void store(T value, std::memory_order order = std::memory_order_seq_cst) {
      if (Execution::current() == nullptr)
        value_ = value;
      else
        go(Access::kStore, value, 0, order);
    }
    bool compare_exchange_strong(T& expected, T value, std::memory_order order, std::memory_order) {
      const T before = go(Access::kSwap, value, expected, order);
      return before == expected || (expected = before, false);
    }
    T fetch_add(T value, std::memory_order order) { return go(Access::kAdd, value, 0, order); }
    T go(Access kind, T value, T expected, std::memory_order order) const {
      Execution* execution = Execution::current();
      return execution == nullptr
                 ? value_
                 : static_cast<T>(execution->access(kind, this, sizeof(T), value, expected, order));
    }

   private:
    T value_;
  };

  static void wait(Atomic<std::uint32_t>& word, std::uint32_t seen, base::TimePoint) {
    word.go(Access::kWait, 0, seen, std::memory_order_seq_cst);
  }
  static void wake(Atomic<std::uint32_t>& word) {
    word.go(Access::kWake, 0, 0, std::memory_order_seq_cst);
  }
  static base::TimePoint now() { return {}; }
  static bool relax(unsigned) { return false; }
};

}  // namespace regroup::model
