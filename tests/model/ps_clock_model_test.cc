// All interleavings of collective/ps/clocks.h: workers of mode ssp that pull, push and count, some
// that join, one that is killed and found dead by a server. Each mutant breaks the bound, waits for
// ever or begins far behind, and the search finds it.
#include "collective/ps/clocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>

#include "tests/model/explorer.h"

namespace regroup::model::clocks {
namespace {

namespace ps = collective::ps;
using Bell = shmem::Doorbell<Policy>;
using Word = ps::ClockWord<Policy>;

// The shipped code; a mutant hides one of its functions.
struct Shipped {
  static constexpr bool kPushesFirst = true;
  static constexpr bool kBeginsAlone = true;   // holds a mutex meanwhile
  static constexpr std::uint64_t kBeyond = 0;  // clocks beyond the staleness
  template <class WordOf>
  static std::uint64_t begin(WordOf words, std::uint32_t lanes, std::uint32_t own) {
    return ps::begin_clock<Policy>(words, lanes, own);
  }
  template <class WordOf, class BellOf>
  static void count(WordOf words, BellOf bells, std::uint32_t lanes, std::uint32_t own,
                    std::uint64_t clock) {
    ps::count_clock<Policy>(words, bells, lanes, own, clock);
  }
  template <class WordOf, class BellOf>
  static void end(WordOf words, BellOf bells, std::uint32_t lanes, std::uint32_t own) {
    ps::end_clock<Policy>(words, bells, lanes, own);
  }
};

template <class WordOf>
std::uint64_t highest_word(WordOf words, std::uint32_t lanes, std::uint32_t own) {
  std::uint64_t highest = 1;
  for (std::uint32_t lane = 0; lane < lanes; ++lane) {
    if (lane != own) highest = std::max(highest, words(lane).load());
  }
  return highest;
}

struct LooksBeforeItShowsItself : Shipped {
  template <class WordOf>
  static std::uint64_t begin(WordOf words, std::uint32_t lanes, std::uint32_t own) {
    const std::uint64_t highest = highest_word(words, lanes, own);
    words(own).store(highest, std::memory_order_seq_cst);
    return highest - 1;
  }
};

struct ShowsItselfByAReleaseStore : Shipped {
  template <class WordOf>
  static std::uint64_t begin(WordOf words, std::uint32_t lanes, std::uint32_t own) {
    words(own).store(1, std::memory_order_release);
    const std::uint64_t highest = highest_word(words, lanes, own);
    words(own).store(highest, std::memory_order_seq_cst);
    return highest - 1;
  }
};

struct BeginsAtTheFirstClock : Shipped {
  template <class WordOf>
  static std::uint64_t begin(WordOf words, std::uint32_t, std::uint32_t own) {
    words(own).store(1, std::memory_order_seq_cst);
    return 0;
  }
};

struct BeginsBesideAnother : Shipped {
  static constexpr bool kBeginsAlone = false;
};

struct CountsBeforeItsPushesAreApplied : Shipped {
  static constexpr bool kPushesFirst = false;
};

struct PullsAClockTooEarly : Shipped {
  static constexpr std::uint64_t kBeyond = 1;
};

struct WakesNobody : Shipped {
  template <class WordOf, class BellOf>
  static void count(WordOf words, BellOf, std::uint32_t, std::uint32_t own, std::uint64_t clock) {
    words(own).store(clock + 1, std::memory_order_seq_cst);
  }
};

struct KeepsTheClockOfTheDead : Shipped {
  template <class WordOf, class BellOf>
  static void end(WordOf, BellOf, std::uint32_t, std::uint32_t) {}
};

struct EndsAClockInSilence : Shipped {
  template <class WordOf, class BellOf>
  static void end(WordOf words, BellOf, std::uint32_t, std::uint32_t own) {
    words(own).store(0, std::memory_order_seq_cst);
  }
};

struct Scene {
  std::uint32_t workers = 2;  // of `lanes` the first ones begin together, before all else
  std::uint32_t joins = 0;    // so many more begin at any moment
  std::uint64_t staleness = 0;
  std::uint64_t turns = 2;          // of each worker
  std::uint64_t turns_of_late = 2;  // of each that joins
  bool kill = false;                // one may be killed: the first worker, or one that joins
};

constexpr std::size_t kMost = 3;

// Fiber `lane` is the worker of that lane; the last one is the server, which ends the clock of a
// dead worker.
template <class Code>
class Turns final : public Scenario {
 public:
  explicit Turns(const Scene& scene) : scene_(scene) {
    for (std::uint32_t i = 0; i < scene.workers; ++i) {
      shared_.words[i] = Word(1);
      shared_.living[i] = 1;
    }
    const auto offset = [&](const void* cell) {
      return static_cast<std::size_t>(static_cast<const std::byte*>(cell) - memory().data());
    };
    for (std::size_t i = 0; i < kMost; ++i) {
      cells[offset(&shared_.words[i])] = fmt_name("clock", i);
      cells[offset(&shared_.pushed[i])] = fmt_name("pushed", i);
      cells[offset(&shared_.bells[i].count)] = fmt_name("count", i);
      cells[offset(&shared_.bells[i].sleeping)] = fmt_name("sleeping", i);
    }
  }

  std::span<std::byte> memory() override { return std::as_writable_bytes(std::span(&shared_, 1)); }
  [[nodiscard]] std::vector<Local> start() const override {
    std::vector<Local> out(lanes() + 1);
    for (std::uint32_t i = 0; i < scene_.workers; ++i) out[i].pc = kPull;
    return out;
  }
  [[nodiscard]] std::string name(std::size_t fiber) const override {
    return fiber == lanes() ? "server" : fmt_name("worker", fiber);
  }
  [[nodiscard]] bool mortal(std::size_t fiber) const override {
    return scene_.kill && (fiber == 0 || (fiber >= scene_.workers && fiber < lanes()));
  }
  void killed(std::size_t fiber) override {
    shared_.living[fiber] = 0;
    shared_.dead = fiber + 1;
    if (shared_.begins.load() == fiber + 1) shared_.begins.store(0);  // a robust mutex
  }
  [[nodiscard]] std::string stuck(std::size_t fiber, const Local&) override {
    if (fiber == lanes() && shared_.dead == 0) return {};  // nobody has died
    return "nobody who lives holds it up";
  }

  bool round(std::size_t fiber, Local& local) override {
    const auto own = static_cast<std::uint32_t>(fiber);
    if (own == lanes()) return serve();
    switch (local.pc) {
      case kBegin:
        if (Code::kBeginsAlone && !may_begin(own)) return true;
        local.count = static_cast<std::uint32_t>(Code::begin(words(), lanes(), own));
        note([&] { note_begin(own, local.count); });
        if (Code::kBeginsAlone) shared_.begins.store(0, std::memory_order_seq_cst);
        local.position = local.count;
        local.pc = kWake;
        return true;
      case kWake:
        ps::wake_clock_waiters<Policy>(bells(), lanes());
        local.pc = turns_of(own) == 0 ? kEnd : kPull;
        return true;
      case kPull:
        Execution::current()->round_is_wait_loop();
        (void)shmem::wait_until(
            shared_.bells[own], [&] { return may_pull(own, local.count); }, base::TimePoint::max());
        local.pc = kLook;
        return true;
      case kLook:
        look(own, local);
        local.pc = kPush;
        return true;
      case kPush: {
        const std::uint64_t next = local.count + 1;
        if (Code::kPushesFirst) push(own, local);
        Code::count(words(), bells(), lanes(), own, next);
        if (!Code::kPushesFirst) push(own, local);
        local.count = static_cast<std::uint32_t>(next);
        local.pc = next - local.position < turns_of(own) ? kPull : kEnd;
        return true;
      }
      default:  // it has nothing left to do, as one that has closed its client
        note([&] { shared_.living[own] = 0; });
        Code::end(words(), bells(), lanes(), own);
        return false;
    }
  }

 private:
  enum : std::uint32_t { kBegin, kWake, kPull, kLook, kPush, kEnd };

  static std::string fmt_name(const char* what, std::size_t number) {
    return what + (" " + std::to_string(number));
  }
  [[nodiscard]] std::uint32_t lanes() const { return scene_.workers + scene_.joins; }
  [[nodiscard]] std::uint64_t turns_of(std::uint32_t own) const {
    return own < scene_.workers ? scene_.turns : scene_.turns_of_late;
  }
  auto words() {
    return [this](std::uint32_t lane) -> auto& { return shared_.words[lane]; };
  }
  auto bells() {
    return [this](std::uint32_t lane) -> auto& { return shared_.bells[lane]; };
  }
  bool may_begin(std::uint32_t own) {
    Execution::current()->await([&] { return plain(shared_.begins) == 0; });
    std::uint64_t nobody = 0;
    return shared_.begins.compare_exchange_strong(nobody, own + 1, std::memory_order_seq_cst,
                                                  std::memory_order_seq_cst);
  }
  bool may_pull(std::uint32_t own, std::uint64_t clock) {
    const auto slow = ps::slowest_other<Policy>(words(), lanes(), own);
    return !slow || !ps::is_too_far_ahead(clock, slow->clock, scene_.staleness + Code::kBeyond);
  }
  // A pull has everything that is applied now. `pushed` holds clocks: all turns below it.
  void look(std::uint32_t own, const Local& local) {
    const std::uint64_t before = shared_.words[own].load();  // an access, to which the note belongs
    (void)before;
    note([&] {
      shared_.pulled_at[own] = local.count + 1;
      for (std::uint32_t other = 0; other < lanes(); ++other) {
        if (other == own || shared_.living[other] == 0) continue;
        if (ps::is_too_far_ahead(local.count, plain(shared_.pushed[other]), scene_.staleness))
          fail(fmt_name("worker", own) + " pulls without a push of " + fmt_name("worker", other));
      }
    });
  }
  // Nobody has pulled so far ahead that a push of the new worker's first turn is missing there, and
  // nobody waits for more turns than if all had begun together.
  void note_begin(std::uint32_t own, std::uint64_t clock) {
    for (std::uint32_t other = 0; other < lanes(); ++other) {
      if (shared_.living[other] == 0) continue;
      const std::uint64_t there = plain(shared_.words[other]) - 1;
      if (std::max(clock, there) - std::min(clock, there) > scene_.staleness + 1)
        fail(fmt_name("worker", own) + " begins far from " + fmt_name("worker", other));
      if (shared_.pulled_at[other] == 0) continue;
      if (ps::is_too_far_ahead(shared_.pulled_at[other] - 1, clock, scene_.staleness))
        fail(fmt_name("worker", own) + " begins too far behind " + fmt_name("worker", other));
    }
    shared_.living[own] = 1;
    shared_.pushed[own].store(clock);
  }
  void push(std::uint32_t own, const Local& local) {
    shared_.pushed[own].store(local.count + 1, std::memory_order_release);
  }
  bool serve() {
    Execution::current()->await([&] { return shared_.dead != 0; });
    Code::end(words(), bells(), lanes(), static_cast<std::uint32_t>(shared_.dead - 1));
    return false;
  }
  static std::uint64_t plain(const Word& word) {
    std::uint64_t out = 0;
    std::memcpy(&out, &word, sizeof out);
    return out;
  }
  // Bookkeeping, in which fail() may be called.
  void note(const std::function<void()>& ghost) {
    failure_.clear();
    Execution::current()->note(ghost);
    if (!failure_.empty()) Execution::current()->failure = failure_;
  }
  void fail(const std::string& why) { failure_ = why; }

  struct Shared {
    Word words[kMost];
    Bell bells[kMost];
    Word pushed[kMost];  // turns below it are in the store
    Word begins;         // the mutex: fiber + 1 of the one that begins; 0: nobody
    // Of the test.
    std::uint64_t living[kMost] = {}, pulled_at[kMost] = {};
    std::uint64_t dead = 0;  // fiber + 1
  } shared_;
  const Scene scene_;
  std::string failure_;
};

template <class Code>
Findings search(const Scene& scene, bool tso) {
  Turns<Code> scenario(scene);
  Findings found = explore(scenario, {.tso = tso, .kills = scene.kill ? 1U : 0U});
  std::printf("%zu states, %zu steps%s\n", found.states, found.steps,
              found.complete ? ", complete" : "");
  if (!found.violation.empty()) std::printf("  %s after\n", found.violation.c_str());
  for (std::size_t i = 0; i < found.trace.size(); ++i)
    std::printf("  %2zu. %s\n", i + 1, found.trace[i].c_str());
  return found;
}

constexpr Scene kTwo{};
constexpr Scene kThreeTurns{.turns = 3};
constexpr Scene kTwoStale{.staleness = 1, .turns = 3};
constexpr Scene kJoin{.workers = 1, .joins = 1};
constexpr Scene kJoinStale{
    .workers = 1, .joins = 1, .staleness = 1, .turns = 3, .turns_of_late = 3};
constexpr Scene kTwoJoin{.workers = 1, .joins = 2, .turns_of_late = 0};
constexpr Scene kDeath{.kill = true};
constexpr Scene kJoinAndDeath{.workers = 1, .joins = 1, .kill = true};

TEST(PsClockModel, TheBoundHoldsAndNobodyWaitsForEver) {
  for (const bool tso : {false, true}) {
    for (const Scene& scene : {kTwo, kThreeTurns, kTwoStale, kJoin, kJoinStale, kDeath}) {
      const Findings found = search<Shipped>(scene, tso);
      EXPECT_TRUE(found.complete || found.cut);
      EXPECT_EQ(found.violation, "");
    }
  }
}

TEST(PsClockModel, NobodyBeginsFarFromTheOthers) {  // these have many states
  for (const Scene& scene : {kTwoJoin, kJoinAndDeath}) {
    const Findings found = search<Shipped>(scene, false);
    EXPECT_TRUE(found.complete || found.cut);
    EXPECT_EQ(found.violation, "");
  }
}

template <class Code>
void expect_caught(const Scene& scene, const std::string& part, bool tso = false) {
  const Findings found = search<Code>(scene, tso);
  if (found.cut) return;
  EXPECT_NE(found.violation.find(part), std::string::npos) << "the mutant was not caught";
  EXPECT_FALSE(found.trace.empty());
}

TEST(PsClockModel, MutantLooksBeforeItShowsItself) {
  expect_caught<LooksBeforeItShowsItself>(kJoin, "begins too far behind");
}
TEST(PsClockModel, MutantShowsItselfByAReleaseStoreNeedsStoreBuffers) {
  EXPECT_TRUE(search<ShowsItselfByAReleaseStore>(kJoin, false).complete);
  expect_caught<ShowsItselfByAReleaseStore>(kJoin, "begins too far behind", true);
}
TEST(PsClockModel, MutantBeginsAtTheFirstClock) {
  expect_caught<BeginsAtTheFirstClock>(kJoin, "begins too far behind");
}
TEST(PsClockModel, MutantCountsBeforeItsPushesAreApplied) {
  expect_caught<CountsBeforeItsPushesAreApplied>(kTwo, "pulls without a push");
}
TEST(PsClockModel, MutantBeginsBesideAnother) {
  expect_caught<BeginsBesideAnother>(kTwoJoin, "begins far from");
}
TEST(PsClockModel, MutantPullsAClockTooEarly) {
  expect_caught<PullsAClockTooEarly>(kTwoStale, "pulls without a push");
}
TEST(PsClockModel, MutantWakesNobody) { expect_caught<WakesNobody>(kThreeTurns, "for ever"); }
TEST(PsClockModel, MutantKeepsTheClockOfTheDead) {
  expect_caught<KeepsTheClockOfTheDead>(kDeath, "for ever");
}
TEST(PsClockModel, MutantEndsAClockInSilence) {
  expect_caught<EndsAClockInSilence>(kDeath, "for ever");
}

}  // namespace
}  // namespace regroup::model::clocks
