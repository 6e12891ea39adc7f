// A writer that dies at any access to a store, and in the middle of any copy: its successor finds
// no torn row, applies what the log has, and the client's second try changes nothing twice. Every
// access of every push is tried (of the long first one the first and last, and some others), and
// for some of them every access of the recovery. Two mutants, which reorder stores, must be caught.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/collective/ps/small_store.h"

namespace regroup::collective::ps::testing::crash {
namespace {

struct Killed {};

// Dies at access number `left`, counted down; 0: never.
struct Countdown {
  long left = 0;
  long done = 0;
  void step() {
    ++done;
    if (left > 0 && --left == 0) throw Killed();
  }
};
Countdown countdown;

struct KilledAccess {
  static void write(void* to, const void* from, std::size_t bytes) {
    countdown.step();
    std::memcpy(to, from, bytes / 2);
    if (bytes > 1) countdown.step();
    std::memcpy(static_cast<std::byte*>(to) + bytes / 2,
                static_cast<const std::byte*>(from) + bytes / 2, bytes - bytes / 2);
  }
  static void clear(void* to, std::size_t bytes) {
    countdown.step();
    std::memset(to, 0, bytes);
  }
  static void publish(Word& word, std::uint64_t value) {
    countdown.step();
    word.store(value);
  }
  static void point() { countdown.step(); }
};

// Mutant: what is written becomes visible behind the word that publishes it.
struct LateWrites : KilledAccess {
  static inline std::vector<std::pair<std::byte*, std::vector<std::byte>>> held;
  static void write(void* to, const void* from, std::size_t bytes) {
    const auto* const begin = static_cast<const std::byte*>(from);
    // The writer itself reads what it has written.
    std::vector<std::byte> before(static_cast<std::byte*>(to), static_cast<std::byte*>(to) + bytes);
    std::memcpy(to, begin, bytes);
    held.emplace_back(static_cast<std::byte*>(to), std::move(before));
  }
  static void publish(Word& word, std::uint64_t value) {
    word.store(value);
    try {
      countdown.step();
    } catch (const Killed&) {  // the newest writes never became visible
      for (auto one = held.rbegin(); one != held.rend(); ++one)
        std::ranges::copy(one->second, one->first);
      held.clear();
      throw;
    }
    held.clear();
  }
};

// Mutant: each publish of a word becomes visible behind the next one.
struct SwappedWords : KilledAccess {
  static inline std::optional<std::pair<Word*, std::uint64_t>> before;
  static void publish(Word& word, std::uint64_t value) {
    const std::uint64_t old = word.load();
    word.store(value);
    try {
      countdown.step();
    } catch (const Killed&) {
      if (before && before->first != &word) before->first->store(before->second);
      before.reset();
      throw;
    }
    before = {&word, old};
  }
};

struct Case {
  TableSpec spec;
  PositionRange positions;
  std::vector<OwnedPush> pushes;
  std::vector<std::uint64_t> keys;  // all that the pushes name
};

class Undisturbed {
 public:
  using Bytes = std::vector<std::byte>;

  explicit Undisturbed(const Case& what) : case_(what) {}

  // The contents after the first `count` pushes.
  const Bytes& contents(std::size_t count) {
    if (contents_.empty()) run();
    return contents_[count];
  }

 private:
  void run() {
    SmallStore store;
    auto writer = Store::attach(store.memory);
    ASSERT_TRUE(writer.ok()) << writer.status().to_string();
    auto range = (*writer)->open_range(1, case_.spec, case_.positions);
    ASSERT_TRUE(range.ok()) << range.status().to_string();
    const auto save = [&] {
      contents_.push_back(values_of<std::byte>(*(*range)->reader(), case_.keys));
    };
    save();
    for (const OwnedPush& push : case_.pushes) {
      const auto appended = (*range)->append(push.get());
      ASSERT_TRUE(appended.ok()) << appended.status().to_string();
      ASSERT_TRUE((*range)->apply(appended->lsn).ok());
      (*writer)->release_log();
      save();
    }
  }

  const Case& case_;
  std::vector<Bytes> contents_;
};

// Tries deaths, and says what was wrong at the first one that breaks a promise.
template <class P>
class Crashes {
 public:
  explicit Crashes(const Case& what) : case_(what), undisturbed_(what) {
    image_.resize(store_.memory.bytes());
  }

  // Every access of every push; the recoveries of every `stride`th of these die, too.
  std::string run(long stride) {
    for (std::size_t at = 0; at < case_.pushes.size(); ++at) {
      save();
      // The first push makes the range, then it is long and like the others.
      for (long access = 1;; access += at == 0 && access > 64 ? 13 : 1) {
        countdown = {access};
        const bool died = !survives([&] { attach_and_push(at); });
        if (!died) break;
        ++deaths_;
        if (std::string wrong = check_torn(at); !wrong.empty()) return at_access(at, access, wrong);
        if (access % stride == 0) {
          const std::vector<std::byte> dead = bytes();
          for (long second = 1;; ++second) {
            restore(dead);
            countdown = {second};
            if (survives([&] { recover(); })) break;
            ++deaths_;
            if (std::string wrong = finish(at); !wrong.empty())
              return at_access(at, access, "recovery " + std::to_string(second) + ": " + wrong);
          }
          restore(dead);
        }
        if (std::string wrong = finish(at); !wrong.empty()) return at_access(at, access, wrong);
        restore(image_);
      }
    }
    return {};
  }
  [[nodiscard]] long deaths() const { return deaths_; }
  // Of the index's directory.
  [[nodiscard]] std::uint32_t depth() const {
    return IndexRoot::of(ranges_in(store_.memory)->front()->root.load()).depth;
  }

 private:
  using Writer = std::unique_ptr<BasicStore<P>>;

  std::vector<std::byte> bytes() const {
    return {store_.memory.at(0), store_.memory.at(store_.memory.bytes())};
  }
  void save() { image_ = bytes(); }
  void restore(const std::vector<std::byte>& image) {
    std::memcpy(store_.memory.at(0), image.data(), image.size());
  }
  static bool survives(const std::function<void()>& run) {
    try {
      run();
    } catch (const Killed&) {
      countdown = {};
      return false;
    }
    countdown = {};
    return true;
  }
  static std::string at_access(std::size_t push, long access, const std::string& wrong) {
    return "push " + std::to_string(push) + ", access " + std::to_string(access) + ": " + wrong;
  }

  // A successor that has applied the log.
  Writer recover() {
    auto writer = BasicStore<P>::attach(store_.memory);
    if (!writer.ok()) {
      wrong_ = writer.status().to_string();
      return nullptr;
    }
    if (BasicRange<P>* const range = (*writer)->range(1); range != nullptr) {
      if (base::Status status = range->apply(range->newest()); !status.ok())
        wrong_ = status.to_string();
    }
    (*writer)->release_log();
    return std::move(*writer);
  }
  void attach_and_push(std::size_t at) {
    const Writer writer = recover();
    if (writer == nullptr) return;
    auto range = writer->open_range(1, case_.spec, case_.positions);
    if (!range.ok()) {
      wrong_ = range.status().to_string();
      return;
    }
    auto appended = (*range)->append(case_.pushes[at].get());
    if (!appended.ok()) {
      wrong_ = appended.status().to_string();
      return;
    }
    if (base::Status status = (*range)->apply((*range)->newest()); !status.ok())
      wrong_ = status.to_string();
    writer->release_log();
  }

  // A reader without a server: each row is as before the push or as after it.
  std::string check_torn(std::size_t at) {
    auto headers = ranges_in(store_.memory);
    if (!headers.ok()) return headers.status().to_string();
    if (headers->empty()) return at == 0 ? "" : "the range is gone";
    auto reader = RangeReader::open(store_.memory, *headers->front());
    if (!reader.ok()) return reader.status().to_string();
    const auto now = values_of<std::byte>(*reader, case_.keys);
    const auto& before = undisturbed_.contents(at);
    const auto& after = undisturbed_.contents(at + 1);
    const std::size_t row =
        case_.spec.kind == TableKind::kDense ? now.size() : case_.spec.value_bytes();
    for (std::size_t i = 0; i < now.size(); i += row) {
      const auto same = [&](const std::vector<std::byte>& other) {
        return std::memcmp(now.data() + i, other.data() + i, row) == 0;
      };
      if (!same(before) && !same(after)) return "row " + std::to_string(i / row) + " is torn";
    }
    return {};
  }

  // Recovers, lets the client push again, and goes on for one push.
  std::string finish(std::size_t at) {
    wrong_.clear();
    {
      const Writer writer = recover();
      if (writer == nullptr) return wrong_;
      if (BasicRange<P>* const range = writer->range(1); range != nullptr) {
        const auto now = values_of<std::byte>(*range->reader(), case_.keys);
        const bool logged =
            range->last_of(case_.pushes[at].push.client) == case_.pushes[at].push.number;
        if (now != undisturbed_.contents(at + (logged ? 1 : 0)))
          return logged ? "the logged push is not applied once"
                        : "a push that was not logged shows";
      }
    }
    attach_and_push(at);
    if (at + 1 < case_.pushes.size()) attach_and_push(at + 1);
    if (!wrong_.empty()) return wrong_;
    auto headers = ranges_in(store_.memory);
    if (!headers.ok() || headers->empty()) return "no range";
    const auto now =
        values_of<std::byte>(*RangeReader::open(store_.memory, *headers->front()), case_.keys);
    const std::size_t count = std::min(at + 2, case_.pushes.size());
    return now == undisturbed_.contents(count) ? "" : "contents differ after the second try";
  }

  const Case& case_;
  Undisturbed undisturbed_;
  SmallStore store_{256 << 10, 1, 32 << 10};
  std::vector<std::byte> image_;
  std::string wrong_;
  long deaths_ = 0;
};

// Pushes of two clients: old and new rows, enough for splits of the index and a wrapped ring.
Case sparse(Dtype dtype, OptimizerSpec optimizer, std::size_t pushes, std::size_t rows,
            std::size_t stored) {
  Case out;
  out.spec = {.name = "users",
              .kind = TableKind::kHash,
              .dim = 3,
              .dtype = dtype,
              .init = {InitialKind::kUniform, -1, 1},
              .optimizer = optimizer};
  if (dtype == Dtype::kInt64) out.spec.init = {};
  out.positions = {0, ~0ULL};
  std::uint64_t number[2] = {};
  for (std::size_t at = 0; at < pushes; ++at) {
    std::vector<std::uint64_t> keys;
    // The first push fills the index nearly up to its split.
    const std::size_t count = at == 0 ? stored : rows;
    for (std::size_t i = 0; i < count; ++i)
      keys.push_back(mix64(at == 0      ? i
                           : i % 2 == 0 ? (at * 131 + i * 17) % stored
                                        : stored + at * 100 + i));
    std::ranges::sort(keys);
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    const std::size_t client = at % 2;
    OwnedPush push;
    if (dtype == Dtype::kInt64) {
      std::vector<std::int64_t> ones(keys.size() * 3);
      for (std::size_t i = 0; i < ones.size(); ++i) ones[i] = 1 + static_cast<int>(i % 3);
      push = push_of(client, at + 1, number[client], keys, ones);
    } else {
      std::vector<float> gradient(keys.size() * 3);
      for (std::size_t i = 0; i < gradient.size(); ++i)
        gradient[i] = static_cast<float>(i % 7) - 3 + static_cast<float>(at);
      push = push_of(client, at + 1, number[client], keys, gradient, 0.1);
    }
    number[client] = at + 1;
    out.pushes.push_back(push);
    out.keys.insert(out.keys.end(), keys.begin(), keys.end());
  }
  std::ranges::sort(out.keys);
  out.keys.erase(std::unique(out.keys.begin(), out.keys.end()), out.keys.end());
  return out;
}

Case dense() {
  Case out;
  out.spec = {.name = "top",
              .kind = TableKind::kDense,
              .rows = 1500,
              .init = {InitialKind::kNormal, 0, 1},
              .optimizer = {.kind = OptimizerKind::kAdam}};
  out.positions = {0, 1499};
  for (std::uint64_t at = 1; at <= 6; ++at) {
    std::vector<float> gradient(1500);
    for (std::size_t i = 0; i < gradient.size(); ++i)
      gradient[i] = static_cast<float>((i * at) % 11) - 5;
    out.pushes.push_back(push_of(1, at, at - 1, {}, gradient, 0.01));
  }
  return out;
}

template <class P>
std::string tried(const Case& what, long stride, long least) {
  Crashes<P> crashes(what);
  std::string wrong = crashes.run(stride);
  if (wrong.empty() && crashes.deaths() < least) return "the tests are fewer than meant";
  return wrong;
}

TEST(PsCrash, SumsAreExactWhereverTheWriterDies) {
  EXPECT_EQ(tried<KilledAccess>(sparse(Dtype::kInt64, {}, 5, 8, 40), 29, 400), "");
}

TEST(PsCrash, TheIndexSurvivesASplit) {
  const Case what = sparse(Dtype::kInt64, {}, 2, 12, 444);
  Crashes<KilledAccess> crashes(what);
  EXPECT_EQ(crashes.run(97), "");
  EXPECT_EQ(crashes.depth(), 1U);
}

TEST(PsCrash, OptimizerStateIsOfTheSameMomentAsItsRow) {
  EXPECT_EQ(tried<KilledAccess>(
                sparse(Dtype::kFloat32, {.kind = OptimizerKind::kRowAdagrad}, 4, 10, 20), 23, 500),
            "");
  EXPECT_EQ(tried<KilledAccess>(
                sparse(Dtype::kBfloat16, {.kind = OptimizerKind::kLazyAdam}, 4, 10, 20), 23, 500),
            "");
}

TEST(PsCrash, ASliceIsWhole) { EXPECT_EQ(tried<KilledAccess>(dense(), 5, 100), ""); }

// Of three pushes two are discarded, and the writer dies: they are all there, or one.
TEST(PsCrash, ADiscardIsWholeOrNot) {
  const Case what = sparse(Dtype::kInt64, {}, 4, 4, 4);
  SmallStore store(256 << 10, 1, 32 << 10);
  {
    const auto writer = Store::attach(store.memory).value();
    Range* const range = writer->open_range(1, what.spec, what.positions).value();
    for (std::size_t at = 0; at < 3; ++at) ASSERT_TRUE(range->append(what.pushes[at].get()).ok());
    ASSERT_TRUE(range->apply(1).ok());
    writer->release_log();
  }
  const std::vector<std::byte> image(store.memory.at(0), store.memory.at(store.memory.bytes()));
  Undisturbed undisturbed(what);
  int deaths = 0;
  for (long access = 1;; ++access) {
    std::memcpy(store.memory.at(0), image.data(), image.size());
    bool died = false;
    try {
      countdown = {access};
      const auto writer = BasicStore<KilledAccess>::attach(store.memory).value();
      ASSERT_TRUE(writer->range(1)->discard_after(1).ok());
      writer->release_log();
    } catch (const Killed&) {
      died = true;
      ++deaths;
    }
    countdown = {};
    auto writer = Store::attach(store.memory).value();
    Range* range = writer->range(1);
    if (died && range->newest() == 3) {
      EXPECT_EQ(range->last_of(0), 3U);
      EXPECT_EQ(range->last_of(1), 2U);
      continue;
    }
    ASSERT_EQ(range->newest(), 1U) << access;
    EXPECT_EQ(range->last_of(0), 1U);
    EXPECT_EQ(range->last_of(1), 0U);
    // The same pushes come again under the same LSNs; the void ones do not count.
    for (std::size_t at = 1; at < 3; ++at)
      ASSERT_EQ(range->append(what.pushes[at].get())->outcome, Appended::Outcome::kAppended);
    writer = Store::attach(store.memory).value();
    range = writer->range(1);
    ASSERT_TRUE(range->apply(range->newest()).ok());
    writer->release_log();
    EXPECT_EQ(values_of<std::byte>(*range->reader(), what.keys), undisturbed.contents(3));
    if (!died) break;
  }
  EXPECT_GE(deaths, 3);
}

TEST(PsCrash, MutantsAreCaught) {
  EXPECT_NE(tried<LateWrites>(sparse(Dtype::kInt64, {}, 4, 12, 20), 1000, 0), "");
  EXPECT_NE(tried<LateWrites>(dense(), 1000, 0), "");
  EXPECT_NE(tried<SwappedWords>(sparse(Dtype::kInt64, {}, 4, 12, 20), 1000, 0), "");
}

}  // namespace
}  // namespace regroup::collective::ps::testing::crash
