// Random histories of a sum that is cut short again and again, with the real marks. Three hosts
// have two members, each of which has one block; hosts are excluded and come back, are replaced, or
// have no leaves. Leaves have other bits in each generation, so that a host that keeps a block
// which another host does not have is found.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <vector>

#include "collective/net/allreduce_progress.h"

namespace regroup::collective::sum_blocks_model {
namespace {

constexpr std::uint32_t kHosts = 3, kBlocks = 2, kSum = 9;  // member b of a host has block b
constexpr proto::Generation kLast = 7;
constexpr int kGarbage = -1;  // a piece is in flight

struct Host {
  std::array<std::atomic<std::uint32_t>, kBlocks> marks{};
  std::atomic<std::uint32_t> generation{};
  std::array<int, kBlocks> value{kGarbage, kGarbage};  // the generation whose bits the block has

  [[nodiscard]] SumBlocks blocks() { return {marks, &generation, kSum}; }
};

struct Member {
  enum Stage : std::uint8_t {
    kReadMarks,
    kBarrier,
    kExchange,
    kBegin,
    kReduce,
    kComplete,
    kDone
  } stage = kReadMarks;
  bool dead = false;
  net::AllreduceProgress progress = {};
  net::Blocks common = {};
};

class History {
 public:
  explicit History(std::uint64_t seed) : random_(seed) {
    for (auto& host : hosts_) host = std::make_unique<Host>();
  }
  // Until a sum is complete, or the last generation is over.
  void run() {
    for (g_ = 1; g_ <= kLast && !::testing::Test::HasFailure(); ++g_) {
      begin();
      while (chance(40) && !whole()) step();
      if (whole()) return expect_same(0), expect_same(1);
    }
  }
  [[nodiscard]] int skipped() const { return skipped_; }

 private:
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }
  bool chance(std::uint32_t of) { return below(of) != 0; }  // false once in `of` calls

  void begin() {
    world_.clear();
    while (world_.empty()) {
      for (std::uint32_t h = 0; h < kHosts; ++h) {
        if (chance(4)) world_.push_back(h);
        if (!chance(12)) hosts_[h] = std::make_unique<Host>();  // a new agent with a new arena
      }
    }
    members_ = {};
    idle_ = below(2 * kHosts);  // this host has no leaves
  }
  Member& member(std::uint32_t host, std::uint32_t block) { return members_.at(host).at(block); }
  bool all(std::uint32_t block, Member::Stage at_least, bool with_idle = true) {
    return std::ranges::all_of(world_, [&](std::uint32_t h) {
      return (h == idle_ && !with_idle) || member(h, block).stage >= at_least;
    });
  }
  bool whole() { return all(0, Member::kDone) && all(1, Member::kDone); }

  void step() {
    const std::uint32_t h = world_[below(static_cast<std::uint32_t>(world_.size()))],
                        b = below(kBlocks);
    Member& m = member(h, b);
    m.dead |= !chance(100);
    if (m.dead || m.stage == Member::kDone) return;
    if (world_.size() == 1) return sum_alone(*hosts_[h], b, &m);
    if (advance(h, b, &m)) m.stage = static_cast<Member::Stage>(m.stage + 1);
  }
  void sum_alone(Host& host, std::uint32_t b, Member* m) {
    begin_sum(host.blocks(), g_);
    host.value.at(b) = static_cast<int>(g_);
    m->stage = Member::kDone;
  }
  bool advance(std::uint32_t h, std::uint32_t b, Member* m) {
    Host& host = *hosts_[h];
    switch (m->stage) {
      case Member::kReadMarks:
        m->progress.completed = net::marked(host.blocks());
        m->progress.generation = host.generation;
        return true;
      case Member::kBarrier:  // the local barrier
        return member(h, 0).stage >= Member::kBarrier && member(h, 1).stage >= Member::kBarrier;
      case Member::kExchange:
        if (!all(b, Member::kExchange)) return false;
        m->common = m->progress.completed;
        for (const std::uint32_t other : world_)
          m->common = net::common_blocks({{}, m->common, m->progress.generation},
                                         member(other, b).progress);
        return true;
      case Member::kBegin:
        begin_sum(host.blocks(), g_, m->common);
        if (std::ranges::any_of(m->common, [&](const proto::Interval& i) { return i.contains(b); }))
          skip(b, m);
        return true;
      case Member::kReduce:
        host.value.at(b) = kGarbage;
        return true;
      case Member::kComplete:
        if (!all(b, Member::kComplete, false)) return false;
        host.value.at(b) = static_cast<int>(g_);
        net::mark(host.blocks(), {b, b + 1});
        return true;
      case Member::kDone:
        return false;
    }
    return false;
  }
  void skip(std::uint32_t b, Member* m) {
    skipped_ += 1;
    expect_same(b);
    m->stage = Member::kComplete;  // the last stage before kDone
  }
  void expect_same(std::uint32_t b) {
    for (const std::uint32_t h : world_) {
      EXPECT_EQ(hosts_[h]->value.at(b), hosts_[world_[0]]->value.at(b)) << "generation " << g_;
      EXPECT_NE(hosts_[h]->value.at(b), kGarbage);
    }
  }

  std::mt19937_64 random_;
  std::array<std::unique_ptr<Host>, kHosts> hosts_;
  std::array<std::array<Member, kBlocks>, kHosts> members_;
  std::vector<std::uint32_t> world_;
  std::uint32_t idle_ = 0;
  proto::Generation g_ = 0;
  int skipped_ = 0;
};

TEST(SumBlocksModel, NoHostKeepsWhatAnotherDoesNotHave) {
  int skipped = 0;
  for (std::uint64_t seed = 1; seed <= 200'000 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    History history(seed);
    history.run();
    skipped += history.skipped();
  }
  EXPECT_GT(skipped, 10'000);
}

}  // namespace
}  // namespace regroup::collective::sum_blocks_model
