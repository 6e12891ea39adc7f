// Memory in the arena, of all ranks or of some, inputs or outputs or both: the same results as with
// ordinary memory. A rank that is done may change its memory while others are still in the
// operation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "collective/shm/factory.h"
#include "tests/collective/exchange.h"
#include "tests/collective/harness.h"

namespace regroup::collective::testing::shm_arena {
namespace {

// Bytes of a contribution: at and around every limit between two algorithms.
constexpr std::size_t kWholes[] = {4,    56,     60,     1024,   1028,   3000,    4096,   4100,
                                   9000, 16'384, 16'388, 32'768, 32'772, 131'076, 300'004};
constexpr std::size_t kFewRanks = 4;  // more than so many do without the largest
constexpr std::size_t kSkews[] = {0, 27, 1,
                                  91};  // with the guard of an Exchange 27 is a multiple of 64
constexpr std::size_t kSkew = 128;      // more than any

// Whose memory lies in the arena.
enum class Where { kNobodys, kAll, kInputs, kOutputs, kFirsts, kLasts, kEvens, kAny };
constexpr Where kWheres[] = {Where::kNobodys, Where::kAll,   Where::kInputs, Where::kOutputs,
                             Where::kFirsts,  Where::kLasts, Where::kEvens,  Where::kAny};

struct InArena {
  bool in;
  bool out;
};
InArena in_arena(Where where, std::size_t rank, std::size_t size, std::mt19937_64& random) {
  const auto both = [](bool yes) { return InArena{yes, yes}; };
  switch (where) {
    case Where::kNobodys:
      return both(false);
    case Where::kAll:
      return both(true);
    case Where::kInputs:
      return {true, false};
    case Where::kOutputs:
      return {false, true};
    case Where::kFirsts:
      return both(rank == 0);
    case Where::kLasts:
      return both(rank + 1 == size);
    case Where::kEvens:
      return both(rank % 2 == 0);
    case Where::kAny:
      break;
  }
  return {random() % 2 == 0, random() % 2 == 0};
}

Shape shape_of(Kind kind, std::size_t whole, std::size_t ranks, int root, bool in_place) {
  const std::size_t elements = std::max<std::size_t>(1, whole / 4 / (is_split(kind) ? ranks : 1));
  return {kind, Dtype::kFloat32, Op::kSum, root, elements, in_place};
}

using Params = std::tuple<std::size_t, shm::SingleCopyMode, shm::StorePolicy>;

// One thread advances all members, one call at a time in random order: a rank that is done
// continues while the others are anywhere in the operation.
class ShmArena : public ::testing::TestWithParam<Params> {
 protected:
  explicit ShmArena(std::size_t largest = 0)
      : largest_(largest > 0 ? largest : (ranks_ > kFewRanks ? 131'076 : 300'004)) {
    shm::ShmOptions options;
    options.single_copy = std::get<1>(GetParam());
    options.store_policy = std::get<2>(GetParam());
    for (std::size_t slot = 0; slot < ranks_; ++slot) {
      auto comm =
          shm::make_shm(arena_, world_, {0, static_cast<proto::SlotIndex>(slot)}, {}, options);
      EXPECT_TRUE(comm.ok()) << comm.status().to_string();
      members_.push_back(std::move(comm).value());
    }
  }

  [[nodiscard]] std::size_t largest() const { return largest_; }
  [[nodiscard]] std::span<std::byte> buffer(std::size_t rank, std::uint32_t index,
                                            std::uint64_t seed) const {
    return arena_.buffer(static_cast<proto::SlotIndex>(rank), index)
        .subspan(kSkews[seed % std::size(kSkews)]);
  }
  void run(std::vector<Exchange>& exchanges, bool shared_output);

  const std::size_t ranks_ = std::get<0>(GetParam());
  const std::size_t largest_;
  const shmem::Arena arena_ = make_arena({.slots = static_cast<std::uint32_t>(ranks_),
                                          .elements = (ranks_ * (largest() + 4) + 2 * kSkew) / 4});
  const proto::World world_ = make_world(1, static_cast<std::uint32_t>(ranks_));
  std::vector<std::unique_ptr<Communicator>> members_;
  std::mt19937_64 random_{5};
};

void ShmArena::run(std::vector<Exchange>& exchanges, bool shared_output) {
  std::vector<std::optional<Request>> requests(ranks_);
  std::vector<bool> done(ranks_);
  for (std::size_t left = ranks_; left > 0;) {
    const std::size_t r = random_() % ranks_;
    if (done[r]) continue;
    if (!requests[r]) {
      auto request = members_[r]->start(exchanges[r].operation(), soon());
      ASSERT_TRUE(request.ok()) << request.status().to_string();
      requests[r] = *request;
    }
    const auto tested = requests[r]->test();
    ASSERT_TRUE(tested.ok()) << tested.status().to_string();
    if (!*tested) continue;
    ASSERT_EQ(exchanges[r].verify(), "") << "rank " << r;
    exchanges[r].spoil_input();
    if (!shared_output) exchanges[r].spoil_output();
    done[r] = true;
    left -= 1;
  }
}

TEST_P(ShmArena, RunsEveryOperationInAnyMemory) {
  std::uint64_t seed = 0;
  for (Kind kind : kCollectives) {
    for (std::size_t whole : kWholes) {
      for (const bool in_place : {false, true}) {
        if (whole > largest() || kind == Kind::kBarrier) continue;
        if (!is_sampled(++seed)) continue;
        const int root = static_cast<int>(seed % ranks_);
        const Shape shape = shape_of(kind, whole, ranks_, root, in_place);
        const Inputs inputs = make_inputs(shape, static_cast<int>(ranks_), seed);
        for (const Where where : kWheres) {
          std::vector<Exchange> exchanges;
          for (std::size_t r = 0; r < ranks_; ++r) {
            const InArena mine = in_arena(where, r, ranks_, random_);
            const Room room{mine.in ? buffer(r, 0, seed) : std::span<std::byte>(),
                            mine.out ? buffer(r, 1, seed) : std::span<std::byte>()};
            exchanges.emplace_back(shape, static_cast<int>(r), static_cast<int>(ranks_), inputs,
                                   room);
          }
          SCOPED_TRACE(shape.to_string() + ", arena " + std::to_string(static_cast<int>(where)));
          run(exchanges, false);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

// One result for all ranks, with inputs anywhere; rank 0 may have its own there.
TEST_P(ShmArena, ReducesIntoOneSharedResult) {
  std::uint64_t seed = 0;
  for (std::size_t whole : kWholes) {
    for (const bool first_in_place : {false, true}) {
      for (const Where where : kWheres) {
        if (whole > largest() || !is_sampled(++seed)) continue;
        Shape shape = shape_of(Kind::kAllreduce, whole, ranks_, 0, false);
        const Inputs inputs = make_inputs(shape, static_cast<int>(ranks_), seed);
        const auto result = arena_.result(seed).subspan(kSkews[seed / 2 % std::size(kSkews)]);
        std::vector<Exchange> exchanges;
        for (std::size_t r = ranks_; r-- > 0;) {  // rank 0 last: its input stays in the result
          shape.in_place = first_in_place && r == 0;
          const Room room{in_arena(where, r, ranks_, random_).in ? buffer(r, 0, seed) : Room().in,
                          result};
          exchanges.emplace_back(shape, static_cast<int>(r), static_cast<int>(ranks_), inputs,
                                 room);
        }
        std::ranges::reverse(exchanges);
        SCOPED_TRACE(shape.to_string() + ", arena " + std::to_string(static_cast<int>(where)));
        run(exchanges, true);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

class ShmArenaPieces : public ShmArena {
 protected:
  static constexpr std::size_t kPiece = 512 << 10;  // what data_path.cc has for so few ranks
  ShmArenaPieces() : ShmArena(2 * kPiece + 36) {}
  explicit ShmArenaPieces(std::size_t largest) : ShmArena(largest) {}

  // Each rank has a result in the arena, the ranks in the set `in_place` that of their input.
  void reduce(Shape shape, std::uint64_t in_place, std::uint64_t seed) {
    const Inputs inputs = make_inputs(shape, static_cast<int>(ranks_), seed);
    std::vector<Exchange> exchanges;
    for (std::size_t r = 0; r < ranks_; ++r) {
      shape.in_place = (in_place >> r & 1) != 0;
      const Room room{buffer(r, 0, seed), buffer(r, 1, seed)};
      exchanges.emplace_back(shape, static_cast<int>(r), static_cast<int>(ranks_), inputs, room);
    }
    SCOPED_TRACE(shape.to_string() + ", in place " + std::to_string(in_place));
    run(exchanges, false);
  }
};

class ShmArenaLarge : public ShmArenaPieces {
 protected:
  static constexpr std::size_t kLarge = 16 << 20;  // what data_path.cc has
  ShmArenaLarge() : ShmArenaPieces(kLarge + 36) {}
};

// A result for each rank, in the arena like all inputs, in place or not: slices are folded where
// they belong, piece by piece.
TEST_P(ShmArenaPieces, ReducesIntoOneResultForEachRank) {
  std::uint64_t seed = 0;
  for (const std::size_t whole : {33'000UL, kPiece - 4, kPiece, kPiece + 4, largest()}) {
    for (const Op op : {Op::kSum, Op::kAvg, Op::kMax}) {
      Shape shape = shape_of(Kind::kAllreduce, whole, ranks_, 0, false);
      shape.op = op;
      ++seed;
      for (std::uint64_t in_place = 0; in_place < 1ULL << ranks_; ++in_place) {
        if (!is_sampled(in_place + seed)) continue;
        reduce(shape, in_place, seed);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// From 16 MiB on each rank writes its slice to the results of all.
TEST_P(ShmArenaLarge, AllreduceWithAResultForEachRank) {
  for (const std::size_t whole : {kLarge - 4, largest()}) {
    Shape shape = shape_of(Kind::kAllreduce, whole, ranks_, 0, false);
    shape.op = whole == largest() ? Op::kSum : Op::kAvg;
    for (const std::uint64_t in_place : {0ULL, 2ULL, (1ULL << ranks_) - 1}) {
      reduce(shape, in_place, whole + in_place);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

// Every number of ranks in every way takes minutes: only with REGROUP_TEST_FULL.
std::vector<Params> params() {
#ifdef __SANITIZE_THREAD__  // one thread cannot race, and is slow
  return {{3, shm::SingleCopyMode::kNever, shm::StorePolicy::kPlain},
          {3, shm::SingleCopyMode::kAlways, shm::StorePolicy::kStream}};
#else
  std::vector<Params> all;
  const bool full = std::getenv("REGROUP_TEST_FULL") != nullptr;
  for (std::size_t ranks = 1; ranks < 10; ++ranks) {
    for (const auto single_copy : {shm::SingleCopyMode::kNever, shm::SingleCopyMode::kAlways}) {
      for (const auto store_policy : {shm::StorePolicy::kPlain, shm::StorePolicy::kStream}) {
        const bool usual =
            single_copy == shm::SingleCopyMode::kNever && store_policy == shm::StorePolicy::kPlain;
        if (full || usual || ranks == 2 || ranks == 5)
          all.emplace_back(ranks, single_copy, store_policy);
      }
    }
  }
  return all;
#endif
}
const auto kNameOfParam = [](const auto& info) {
  const bool past = std::get<2>(info.param) == shm::StorePolicy::kStream;
  return std::to_string(std::get<0>(info.param)) +
         (std::get<1>(info.param) == shm::SingleCopyMode::kAlways ? "SingleCopy" : "Bounced") +
         (past ? "PastTheCache" : "");
};
const auto kBothStagings = ::testing::Values(shm::StorePolicy::kPlain, shm::StorePolicy::kStream);
INSTANTIATE_TEST_SUITE_P(Ranks, ShmArena, ::testing::ValuesIn(params()), kNameOfParam);
INSTANTIATE_TEST_SUITE_P(Ranks, ShmArenaPieces,
                         ::testing::Combine(::testing::Values<std::size_t>(2, 3, 4),
                                            ::testing::Values(shm::SingleCopyMode::kNever),
                                            kBothStagings),
                         kNameOfParam);
INSTANTIATE_TEST_SUITE_P(Ranks, ShmArenaLarge,
                         ::testing::Combine(::testing::Values<std::size_t>(2, 3),
                                            ::testing::Values(shm::SingleCopyMode::kNever),
                                            ::testing::Values(shm::StorePolicy::kPlain)),
                         kNameOfParam);

struct Case {
  Ranks kind;
  int size;
};
// Empty if it went and the result is right, else what is wrong. Changes the memory as soon as it is
// done.
std::string run_and_spoil(Communicator& comm, Exchange& exchange) {
  const auto status = comm.run(exchange.operation(), soon());
  std::string wrong = status.ok() ? exchange.verify() : status.to_string();
  exchange.spoil_input();
  exchange.spoil_output();
  return wrong;
}

class ShmArenaRanks : public ::testing::TestWithParam<Case> {};

// Any operations one after the other, everybody at its own pace, everybody's memory anywhere.
TEST_P(ShmArenaRanks, RunsRandomOperationsInAnyMemory) {
  const int size = GetParam().size;
  const auto ranks = static_cast<std::size_t>(size);
  constexpr std::size_t kMost = 140'000;
  const shmem::Arena arena = make_arena(
      {.slots = static_cast<std::uint32_t>(size), .elements = (ranks * kMost + 2 * kSkew) / 4});
  const proto::World world = make_world(1, static_cast<std::uint32_t>(size));
  run_ranks(arena, GetParam().kind, size, [&](const shmem::Arena& mine, int rank) {
    const auto slot = static_cast<proto::SlotIndex>(rank);
    auto comm = shm::make_shm(mine, world, {0, slot});
    ASSERT_TRUE(comm.ok()) << comm.status().to_string();
    std::mt19937_64 random(static_cast<std::uint64_t>(rank));
    std::mt19937_64 common(11);
    for (std::uint64_t k = 0; k < rounds(100); ++k) {
      const Kind kind = kCollectives[common() % std::size(kCollectives)];
      const std::size_t whole = common() % 8 == 0 ? kMost : 4 * (common() % 8000);
      const int root = static_cast<int>(common() % ranks);
      const Shape shape = shape_of(kind, whole, ranks, root, random() % 2 == 0);
      const InArena at = in_arena(Where::kAny, 0, 0, random);
      Room room;
      if (at.in) room.in = mine.buffer(slot, 0).subspan(random() % kSkew);
      if (at.out) room.out = mine.buffer(slot, 1).subspan(random() % kSkew);
      Exchange exchange(shape, rank, size, make_inputs(shape, size, k), room);
      dawdle(random);
      ASSERT_EQ(run_and_spoil(**comm, exchange), "") << k;
    }
  });
}

// A result for each rank, everybody at its own pace, with pieces to go and, later, groups about.
TEST_P(ShmArenaRanks, CopiesResultsOfEachRankInPieces) {
  const int size = GetParam().size;
  const std::size_t most =
      std::max<std::size_t>(1 << 20, static_cast<std::size_t>(size) << 18) + 36;
  const shmem::Arena arena =
      make_arena({.slots = static_cast<std::uint32_t>(size), .elements = (most + 2 * kSkew) / 4});
  const proto::World world = make_world(1, static_cast<std::uint32_t>(size));
  run_ranks(arena, GetParam().kind, size, [&](const shmem::Arena& mine, int rank) {
    const auto slot = static_cast<proto::SlotIndex>(rank);
    auto comm = shm::make_shm(mine, world, {0, slot});
    ASSERT_TRUE(comm.ok()) << comm.status().to_string();
    std::unique_ptr<Communicator> group;
    std::mt19937_64 random(static_cast<std::uint64_t>(rank));
    for (std::uint64_t k = 0; k < rounds(12); ++k) {
      const Shape shape =
          shape_of(Kind::kAllreduce, k % 3 == 0 ? most : most >> k, 1, 0, random() % 2 == 0);
      const Room room{mine.buffer(slot, 0),
                      mine.buffer(slot, 1).subspan(kSkews[k % std::size(kSkews)])};
      Exchange exchange(shape, rank, size, make_inputs(shape, size, k), room);
      dawdle(random);
      ASSERT_EQ(run_and_spoil(**comm, exchange), "") << k;
      if (k != 7) continue;
      auto made = (*comm)->split(rank % 2, soon());
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      group = std::move(made).value();
    }
  });
}

// The results take turns, as in training: what is written at k + 2 was read before k + 1 began.
// From some size on one rank writes each line; all of them write small results, the same bytes.
TEST_P(ShmArenaRanks, ReducesIntoAlternatingSharedResults) {
  const int size = GetParam().size;
  const shmem::Arena arena =
      make_arena({.slots = static_cast<std::uint32_t>(size), .elements = 20'000});
  const proto::World world = make_world(1, static_cast<std::uint32_t>(size));
  run_ranks(arena, GetParam().kind, size, [&](const shmem::Arena& mine, int rank) {
    auto comm = shm::make_shm(mine, world, {0, static_cast<proto::SlotIndex>(rank)});
    ASSERT_TRUE(comm.ok()) << comm.status().to_string();
    std::mt19937_64 random(static_cast<std::uint64_t>(rank));
    for (std::uint64_t k = 0; k < rounds(40); ++k) {
      std::size_t elements = 1 + k * 7919 % 20'000;
#ifdef __SANITIZE_THREAD__
      elements = std::max<std::size_t>(elements, 4100);  // of ranks that share cores, too
#else
      if (k % 4 == 0) elements = 1 + k % 250;
#endif
      std::vector<Bytes> leaves;
      for (int r = 0; r < size; ++r)
        leaves.push_back(
            make_leaf(Dtype::kFloat32, elements, k * 100 + static_cast<std::uint64_t>(r)));
      const Bytes& own = leaves[static_cast<std::size_t>(rank)];
      const auto in = mine.buffer(static_cast<proto::SlotIndex>(rank), 0).first(own.size());
      std::ranges::copy(own, in.begin());
      dawdle(random);
      const auto out = mine.result(k).first(own.size());
      const auto status = (*comm)->allreduce(in, out, Dtype::kFloat32, soon());
      ASSERT_TRUE(status.ok()) << k << ": " << status.to_string();
      std::ranges::fill(in, std::byte{0x42});
      const Bytes want =
          reference_sum(Dtype::kFloat32, leaves, {0, static_cast<std::uint32_t>(size)});
      ASSERT_TRUE(std::ranges::equal(out, want)) << k;
    }
  });
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (int size : {2, 3, 5, 8}) {
    all.push_back({Ranks::kThreads, size});
#ifndef __SANITIZE_THREAD__  // sees no race between processes and makes them slow
    all.push_back({Ranks::kProcesses, size});
#endif
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Sizes, ShmArenaRanks, ::testing::ValuesIn(cases()), [](const auto& info) {
  return (info.param.kind == Ranks::kThreads ? "Threads" : "Processes") +
         std::to_string(info.param.size);
});

}  // namespace
}  // namespace regroup::collective::testing::shm_arena
