// All interleavings of shmem/doorbell.h: publishers and one sleeper, and members that meet, under
// sequential consistency and under x86 store buffers. Each mutant of the code next to it loses a
// wake-up, and the search finds it.
#include <gtest/gtest.h>

#include <cstdio>

#include "shmem/doorbell.h"
#include "tests/model/explorer.h"

namespace regroup::model {
namespace {

using Bell = shmem::Doorbell<Policy>;
using Number = Policy::Atomic<std::uint32_t>;
constexpr auto kSeqCst = std::memory_order_seq_cst;

// The shipped code; a mutant hides one of its functions.
struct Shipped {
  static constexpr bool kLoops = true;  // sleep_until() is wait_until()
  static void publish(Number& data, Bell& bell) {
    data.store(1, std::memory_order_release);
    shmem::ring(bell);
  }
  template <class Ready>
  static void sleep_until(Bell& bell, Ready ready) {
    (void)shmem::wait_until(bell, ready, base::TimePoint::max());
  }
};

// A store that is sequentially consistent itself needs to ring sleepers only.
struct RingsSleepersOnly : Shipped {
  static void publish(Number& data, Bell& bell) {
    data.store(1, kSeqCst);
    shmem::ring_if_asleep(bell);
  }
};

struct RingsSleepersOnlyBehindAReleaseStore : Shipped {
  static void publish(Number& data, Bell& bell) {
    data.store(1, std::memory_order_release);
    shmem::ring_if_asleep(bell);
  }
};

struct DoesNotLookAgainBeforeItSleeps : RingsSleepersOnly {
  static constexpr bool kLoops = false;
  template <class Ready>
  static void sleep_until(Bell& bell, Ready ready) {
    for (;;) {
      const std::uint32_t seen = bell.count.load();
      if (ready()) return;
      bell.sleeping.store(1, kSeqCst);
      Policy::wait(bell.count, seen, {});
      bell.sleeping.store(0);
    }
  }
};

struct WakeBeforePublish : Shipped {
  static void publish(Number& data, Bell& bell) {
    shmem::ring(bell);
    data.store(1, std::memory_order_release);
  }
};

struct NoRing : Shipped {
  static void publish(Number& data, Bell&) { data.store(1, std::memory_order_release); }
};

struct WakeWithoutCounting : Shipped {
  static void publish(Number& data, Bell& bell) {
    data.store(1, std::memory_order_release);
    if (bell.sleeping.load() != 0) Policy::wake(bell.count);
  }
};

// The sleeper's second look saves it, unless the data are still on their way to it.
struct LooksForSleepersBeforeCounting : Shipped {
  static void publish(Number& data, Bell& bell) {
    data.store(1, std::memory_order_release);
    const bool sleeping = bell.sleeping.load() != 0;
    bell.count.fetch_add(1, kSeqCst);
    if (sleeping) Policy::wake(bell.count);
  }
};

struct CountsInTwoAccesses : Shipped {
  static void publish(Number& data, Bell& bell) {
    data.store(1, std::memory_order_release);
    bell.count.store(bell.count.load() + 1);
    if (bell.sleeping.load() != 0) Policy::wake(bell.count);
  }
};

// A counter of one bit: two rings look like none.
struct CountsModuloTwo : Shipped {
  static void publish(Number& data, Bell& bell) {
    data.store(1, std::memory_order_release);
    std::uint32_t seen = bell.count.load();
    while (!bell.count.compare_exchange_strong(seen, seen ^ 1, kSeqCst, kSeqCst)) {
    }
    if (bell.sleeping.load() != 0) Policy::wake(bell.count);
  }
};

// Right for one ringer in any order of the accesses; only a store buffer breaks it.
struct CountsWithAReleaseStore : Shipped {
  static void publish(Number& data, Bell& bell) {
    data.store(1, std::memory_order_release);
    bell.count.store(bell.count.load() + 1, std::memory_order_release);
    if (bell.sleeping.load() != 0) Policy::wake(bell.count);
  }
};

struct ChecksBeforeReadingTheWord : Shipped {
  static constexpr bool kLoops = false;
  template <class Ready>
  static void sleep_until(Bell& bell, Ready ready) {
    while (!ready()) {
      const std::uint32_t seen = bell.count.load();
      bell.sleeping.store(1, kSeqCst);
      Policy::wait(bell.count, seen, {});
      bell.sleeping.store(0);
    }
  }
};

struct WaitsOnAFreshWord : Shipped {
  static constexpr bool kLoops = false;
  template <class Ready>
  static void sleep_until(Bell& bell, Ready ready) {
    while (!ready()) {
      bell.sleeping.store(1, kSeqCst);
      Policy::wait(bell.count, bell.count.load(), {});
      bell.sleeping.store(0);
    }
  }
};

struct NeverSaysThatItSleeps : Shipped {
  static constexpr bool kLoops = false;
  template <class Ready>
  static void sleep_until(Bell& bell, Ready ready) {
    for (;;) {
      const std::uint32_t seen = bell.count.load();
      if (ready()) return;
      Policy::wait(bell.count, seen, {});
    }
  }
};

// publishers[k] is how many data fiber k publishes, one after the other; the last fiber sleeps
// until all are there.
template <class Code>
class Publishing final : public Scenario {
 public:
  explicit Publishing(std::vector<int> publishers) : publishers_(std::move(publishers)) {
    for (const int n : publishers_) total_ += n;
    const auto offset = [&](const void* cell) {
      return static_cast<std::size_t>(static_cast<const std::byte*>(cell) - memory().data());
    };
    cells[offset(&shared_.bell.count)] = "count";
    cells[offset(&shared_.bell.sleeping)] = "sleeping";
    for (int i = 0; i < 4; ++i) cells[offset(&shared_.data[i])] = "data" + std::to_string(i);
  }

  std::span<std::byte> memory() override { return std::as_writable_bytes(std::span(&shared_, 1)); }
  [[nodiscard]] std::vector<Local> start() const override {
    return std::vector<Local>(publishers_.size() + 1);
  }
  [[nodiscard]] std::string name(std::size_t fiber) const override {
    return fiber == publishers_.size() ? "sleeper" : "publisher " + std::to_string(fiber);
  }
  bool round(std::size_t fiber, Local& local) override {
    if (fiber == publishers_.size()) {
      if (Code::kLoops) Execution::current()->round_is_wait_loop();
      Code::sleep_until(shared_.bell, [&] { return all_there(); });
      return false;
    }
    int first = 0;
    for (std::size_t k = 0; k < fiber; ++k) first += publishers_[k];
    Code::publish(shared_.data[first + static_cast<int>(local.count)], shared_.bell);
    return static_cast<int>(++local.count) < publishers_[fiber];
  }
  [[nodiscard]] std::string stuck(std::size_t, const Local&) override {
    return "all data are published";
  }

 private:
  bool all_there() const {
    for (int i = 0; i < total_; ++i) {
      if (shared_.data[i].load(std::memory_order_acquire) == 0) return false;
    }
    return true;
  }

  struct Shared {
    Bell bell;
    Number data[4];
  } shared_;
  const std::vector<int> publishers_;
  int total_ = 0;
};

template <class Code>
Findings search(std::vector<int> publishers, bool tso) {
  Publishing<Code> scenario(std::move(publishers));
  Findings found = explore(scenario, {.tso = tso});
  std::printf("%zu states, %zu steps%s\n", found.states, found.steps,
              found.complete ? ", complete" : "");
  if (!found.violation.empty()) std::printf("  %s after\n", found.violation.c_str());
  for (std::size_t i = 0; i < found.trace.size(); ++i)
    std::printf("  %2zu. %s\n", i + 1, found.trace[i].c_str());
  return found;
}

template <class Code>
void expect_holds() {
  for (const bool tso : {false, true}) {
    for (const std::vector<int>& publishers :
         std::vector<std::vector<int>>{{1}, {3}, {1, 1}, {2, 1}, {1, 1, 1}}) {
      const Findings found = search<Code>(publishers, tso);
      EXPECT_TRUE(found.complete || found.cut);
      EXPECT_EQ(found.violation, "");
    }
  }
}

template <class Code>
void expect_caught(const std::vector<int>& publishers = {1}, bool tso = false) {
  const Findings found = search<Code>(publishers, tso);
  if (found.cut) return;
  EXPECT_NE(found.violation.find("for ever"), std::string::npos) << "the mutant was not caught";
  EXPECT_FALSE(found.trace.empty());
}

TEST(DoorbellModel, LosesNoWakeUp) { expect_holds<Shipped>(); }

TEST(DoorbellModel, RingingSleepersOnlyLosesNoWakeUp) { expect_holds<RingsSleepersOnly>(); }
TEST(DoorbellModel, MutantDoesNotLookAgainBeforeItSleeps) {
  expect_caught<DoesNotLookAgainBeforeItSleeps>();
}
TEST(DoorbellModel, MutantRingsSleepersOnlyBehindAReleaseStore) {
  expect_caught<RingsSleepersOnlyBehindAReleaseStore>({1}, true);
}
TEST(DoorbellModel, MutantWakeBeforePublish) { expect_caught<WakeBeforePublish>(); }
TEST(DoorbellModel, MutantNoRing) { expect_caught<NoRing>(); }
TEST(DoorbellModel, MutantWakeWithoutCounting) { expect_caught<WakeWithoutCounting>(); }
TEST(DoorbellModel, MutantLooksForSleepersBeforeCountingNeedsStoreBuffers) {
  expect_caught<LooksForSleepersBeforeCounting>({1}, true);
}
TEST(DoorbellModel, MutantChecksBeforeReadingTheWord) {
  expect_caught<ChecksBeforeReadingTheWord>();
}
TEST(DoorbellModel, MutantWaitsOnAFreshWord) { expect_caught<WaitsOnAFreshWord>(); }
TEST(DoorbellModel, MutantNeverSaysThatItSleeps) { expect_caught<NeverSaysThatItSleeps>(); }
TEST(DoorbellModel, MutantCountsInTwoAccesses) { expect_caught<CountsInTwoAccesses>({2, 1}); }

TEST(DoorbellModel, MutantCountsModuloTwo) { expect_caught<CountsModuloTwo>({2}); }

// Shows why the search has store buffers: without them it does not find this mutant.
TEST(DoorbellModel, MutantCountsWithAReleaseStoreNeedsStoreBuffers) {
  EXPECT_TRUE(search<CountsWithAReleaseStore>({1}, false).complete);
  expect_caught<CountsWithAReleaseStore>({1}, true);
}

// The synchronisation of collective/shm/sync_points.cc: publish the arrival, poll, then ring(); or
// fence, poll again and sleep.
struct Synchronises {
  static constexpr bool kFencesBeforeItRings = true;
  static constexpr bool kPollsAfterItsFence = true;
};
struct RingsWithoutAFence : Synchronises {
  static constexpr bool kFencesBeforeItRings = false;
};
struct SleepsWithoutAnotherPoll : Synchronises {
  static constexpr bool kPollsAfterItsFence = false;
};

// A synchronisation point of `members`, each of which polls `polls` times before it fences.
template <class Code>
class SyncPoint final : public Scenario {
 public:
  SyncPoint(std::size_t members, int polls) : members_(members), polls_(polls) {}

  std::span<std::byte> memory() override { return std::as_writable_bytes(std::span(&shared_, 1)); }
  [[nodiscard]] std::vector<Local> start() const override { return std::vector<Local>(members_); }
  [[nodiscard]] std::string name(std::size_t fiber) const override {
    return "member " + std::to_string(fiber);
  }
  [[nodiscard]] std::string stuck(std::size_t, const Local&) override { return "all have come"; }

  bool round(std::size_t self, Local& local) override {
    if (local.pc == 1) {
      Execution::current()->round_is_wait_loop();
      (void)shmem::wait_until(
          shared_.bells[self], [&] { return sees_all(self); }, base::TimePoint::max());
      return false;
    }
    shared_.words[self].store(1, std::memory_order_release);
    bool found = false;
    for (int poll = 0; poll < polls_ && !found; ++poll) found = sees_all(self);
    if (!found || Code::kFencesBeforeItRings) fence(self);
    const bool rings = found || (Code::kPollsAfterItsFence && sees_all(self));
    for (std::size_t i = 0; rings && i < members_; ++i) {
      if (i != self) shmem::ring_if_asleep(shared_.bells[i]);
    }
    local.pc = 1;
    return !rings;
  }

 private:
  bool sees_all(std::size_t self) const {
    for (std::size_t i = 0; i < members_; ++i) {
      if (i != self && shared_.words[i].load(kSeqCst) == 0) return false;
    }
    return true;
  }
  void fence(std::size_t self) { shared_.own[self].fetch_add(1, kSeqCst); }

  static constexpr std::size_t kMost = 3;
  struct Shared {
    Bell bells[kMost];
    Number words[kMost];
    Number own[kMost];
  } shared_;
  const std::size_t members_;
  const int polls_;
};

template <class Code>
Findings search_sync_point(std::size_t members, int polls) {
  SyncPoint<Code> scenario(members, polls);
  Findings found = explore(scenario, {.tso = true});
  std::printf("%zu states, %zu steps%s\n", found.states, found.steps,
              found.complete ? ", complete" : "");
  return found;
}

TEST(SyncPointModel, LosesNoWakeUp) {
  for (const auto& [members, polls] : {std::pair{2, 0}, {2, 1}, {2, 2}, {3, 0}, {3, 1}}) {
    const Findings found =
        search_sync_point<Synchronises>(static_cast<std::size_t>(members), polls);
    EXPECT_TRUE(found.complete || found.cut);
    EXPECT_EQ(found.violation, "") << members << " members, " << polls << " polls";
  }
}
TEST(SyncPointModel, MutantRingsWithoutAFence) {
  EXPECT_NE(search_sync_point<RingsWithoutAFence>(2, 1).violation, "");
}
// Without the poll after the fence it can happen that no member sees all arrivals and rings.
TEST(SyncPointModel, MutantSleepsWithoutAnotherPoll) {
  EXPECT_NE(search_sync_point<SleepsWithoutAnotherPoll>(2, 0).violation, "");
}

}  // namespace
}  // namespace regroup::model
