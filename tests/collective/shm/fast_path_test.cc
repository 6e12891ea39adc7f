// Repeated small operations, more of them than the plan cache holds: each runs by its own plan, and
// a mismatch of the ranks is reported correctly. Every kind, with every root, in place and not, at
// the previous address and at others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "collective/shm/factory.h"
#include "tests/collective/exchange.h"
#include "tests/collective/harness.h"

namespace regroup::collective::testing::shm_fast_path {
namespace {

using base::Code;
using ::testing::HasSubstr;

constexpr int kSize = 2;

std::unique_ptr<Communicator> open_comm(const shmem::Arena& arena, int slot, int size = kSize,
                                        shm::InlineMode inline_mode = shm::InlineMode::kAuto) {
  shm::ShmOptions options;
  options.inline_mode = inline_mode;
  auto comm = shm::make_shm(arena, make_world(1, static_cast<std::uint32_t>(size)),
                            {0, static_cast<proto::SlotIndex>(slot)}, {}, options);
  EXPECT_TRUE(comm.ok()) << comm.status().to_string();
  return std::move(comm).value();
}

// Allreduces of bytes that are all 3 in one rank and all 5 in the other. Up to 56 bytes travel in
// the arrival.
struct Case {
  Dtype dtype;
  Op op;
  std::size_t bytes;
  std::byte expected;  // every byte of it
};
constexpr Case kCases[] = {
    {Dtype::kUint8, Op::kSum, 8, std::byte{8}},    {Dtype::kUint8, Op::kProd, 8, std::byte{15}},
    {Dtype::kUint8, Op::kMax, 8, std::byte{5}},    {Dtype::kUint8, Op::kSum, 56, std::byte{8}},
    {Dtype::kUint8, Op::kSum, 57, std::byte{8}},   {Dtype::kInt64, Op::kBor, 8, std::byte{7}},
    {Dtype::kInt16, Op::kBand, 512, std::byte{1}}, {Dtype::kUint8, Op::kAvg, 8, std::byte{4}},
};

TEST(ShmFastPath, RepeatsOperationsInAnyOrder) {
  constexpr int kRounds = 3000;
  const shmem::Arena arena = make_arena({.slots = kSize});
  run_all(Ranks::kThreads, kSize, [&](int rank) {
    const auto comm = open_comm(arena, rank);
    constexpr std::size_t kPlaces = 6;  // of each case: more operations than the plan cache holds
    Bytes from(512 + kPlaces);          // the same for all cases, which differ in nothing else
    Bytes to(from.size());
    std::mt19937_64 random(11);
    for (int round = 0; round < kRounds; ++round) {
      const std::size_t at = (round < kRounds / 2 ? random() : static_cast<std::size_t>(round)) %
                             (kPlaces * std::size(kCases));
      const Case& c = kCases[at / kPlaces];
      const auto in = std::span(from).subspan(at % kPlaces, c.bytes);
      const auto out = std::span(to).subspan(at % kPlaces, c.bytes);
      std::ranges::fill(in, rank == 0 ? std::byte{3} : std::byte{5});
      std::ranges::fill(out, std::byte{0xee});
      ASSERT_EQ(comm->run(Operation::allreduce(in, out, c.dtype, c.op), soon()).to_string(), "ok")
          << round;
      ASSERT_EQ(Bytes(out.begin(), out.end()), Bytes(c.bytes, c.expected))
          << "round " << round << ", case " << at;
      if (random() % 5 != 0) continue;
      ASSERT_EQ(comm->barrier(soon()).to_string(), "ok") << round;
    }
  });
}

// Rank 1 ends with another operation than rank 0, after `before` equal ones.
TEST(ShmFastPath, NamesAMismatchAfterEqualOperations) {
  for (int before = 1; before < 6; ++before) {
    const shmem::Arena arena = make_arena({.slots = kSize});
    run_all(Ranks::kThreads, kSize, [&](int rank) {
      const auto comm = open_comm(arena, rank);
      Bytes in(16);
      Bytes out(16);
      for (int i = 0; i < before; ++i) {
        const auto kind = i % 3 == 2 ? Op::kMax : Op::kSum;
        ASSERT_TRUE(comm->run(Operation::allreduce(in, out, Dtype::kInt32, kind), soon()).ok());
      }
      const std::size_t bytes = rank == 0 ? 16 : 8;
      const base::Status status = comm->run(
          Operation::allreduce(Input(in).first(bytes), Output(out).first(bytes), Dtype::kInt32),
          soon());
      EXPECT_EQ(status.code(), Code::kInvalidArgument);
      std::string seen = status.message();
      if (const auto at = seen.find(" is in "); at != std::string::npos) seen.erase(at, 3);
      EXPECT_THAT(seen, HasSubstr("rank 0 in allreduce of 16 bytes (int32, sum)")) << before;
      EXPECT_THAT(seen, HasSubstr("rank 1 in allreduce of 8 bytes (int32, sum)")) << before;
    });
  }
}

// At one of two addresses of each rank, so that some operations repeat and some do not.
class Places {
 public:
  explicit Places(std::size_t bytes) : bytes_(bytes), memory_(4 * bytes) {}
  [[nodiscard]] Room of(std::size_t index) {
    const std::span<std::byte> whole = memory_;
    return {whole.subspan(index % 2 * 2 * bytes_, bytes_),
            whole.subspan((index % 2 * 2 + 1) * bytes_, bytes_)};
  }

 private:
  std::size_t bytes_;
  Bytes memory_;
};

void run_in(Communicator& comm, const Shape& shape, std::uint64_t seed, const Room& room) {
  Exchange exchange(shape, comm.rank(), comm.size(), make_inputs(shape, comm.size(), seed), room);
  ASSERT_EQ(comm.run(exchange.operation(), soon()).to_string(), "ok") << shape.to_string();
  ASSERT_EQ(exchange.verify(), "") << "round " << seed;
  exchange.spoil_input();  // nobody may read it any more
}

struct Member {
  int ranks;
  std::size_t elements;  // of 4 bytes
  bool on_one_core = false;
  shm::InlineMode inline_mode = shm::InlineMode::kAuto;
};
class ShmFastPathKinds : public ::testing::TestWithParam<Member> {
 protected:
  static std::unique_ptr<Communicator> open(const shmem::Arena& arena, int rank) {
    if (GetParam().on_one_core) bind_to(own_cores().front());
    return open_comm(arena, rank, GetParam().ranks, GetParam().inline_mode);
  }
};

// Each one several times, by its cached plan from the second time on.
TEST_P(ShmFastPathKinds, RunsEveryKindWithEveryRootInAnyMemory) {
  constexpr std::uint64_t kTimes = 12;
  const int ranks = GetParam().ranks;
  const std::size_t elements = GetParam().elements;
  const shmem::Arena arena = make_arena({.slots = static_cast<std::uint32_t>(ranks)});
  run_all(Ranks::kThreads, ranks, [&](int rank) {
    const auto comm = open(arena, rank);
    Places places(elements * 4 * static_cast<std::size_t>(ranks) + 100);
    for (const Kind kind : kCollectives) {
      for (int root = 0; root < ranks; ++root) {
        for (const bool in_place : {false, true}) {
          const Shape shape{kind, Dtype::kFloat32, Op::kSum, root, elements, in_place};
          for (std::uint64_t time = 0; time < kTimes; ++time) {
            const std::size_t index = time < kTimes / 2 ? 0 : time;  // the same, then alternately
            ASSERT_NO_FATAL_FAILURE(run_in(*comm, shape, time, places.of(index)));
          }
        }
      }
    }
  });
}

// A cycle of more operations than the plan cache holds: each is evicted before it repeats.
TEST_P(ShmFastPathKinds, CyclesThroughFortyDifferentOperations) {
  constexpr std::uint64_t kSizes = 8, kTimes = 160;
  const int ranks = GetParam().ranks;
  const shmem::Arena arena = make_arena({.slots = static_cast<std::uint32_t>(ranks)});
  run_all(Ranks::kThreads, ranks, [&](int rank) {
    const auto comm = open(arena, rank);
    Places places((GetParam().elements + kSizes) * 4 * static_cast<std::size_t>(ranks) + 100);
    for (std::uint64_t time = 0; time < kTimes; ++time) {
      const std::size_t elements = GetParam().elements + time / 5 % kSizes;
      const Shape ring[] = {
          {Kind::kBroadcast, Dtype::kInt32, Op::kSum, 0, elements},
          {Kind::kReduce, Dtype::kFloat32, Op::kMax, ranks - 1, elements},
          {Kind::kAllreduce, Dtype::kBfloat16, Op::kSum, 0, elements},
          {Kind::kAllgather, Dtype::kUint8, Op::kSum, 0, elements},
          {Kind::kBroadcast, Dtype::kInt32, Op::kSum, ranks - 1, elements},
      };
      ASSERT_NO_FATAL_FAILURE(run_in(*comm, ring[time % std::size(ring)], time, places.of(0)));
    }
  });
}

constexpr Member in_lines(int ranks, std::size_t elements) {
  return {ranks, elements, false, shm::InlineMode::kAlways};
}
constexpr Member in_chunks(int ranks, std::size_t elements) {
  return {ranks, elements, false, shm::InlineMode::kNever};
}

// In the arrival, in two inline chunks, in many, in the bounce buffer; on one core without inline
// chunks, and in the bounce buffer what elsewhere takes several synchronisation points.
// InlineChunks, InChunks: also where this processor would choose otherwise.
INSTANTIATE_TEST_SUITE_P(
    Shapes, ShmFastPathKinds,
    ::testing::Values(Member{2, 2}, Member{2, 14}, Member{2, 20}, Member{2, 200}, Member{2, 450},
                      Member{2, 1500}, Member{3, 3}, Member{3, 20}, Member{5, 1},
                      Member{2, 2, true}, Member{2, 20, true}, Member{5, 14, true},
                      Member{2, 4000, true}, Member{2, 8000, true}, Member{5, 8000, true},
                      in_lines(2, 20), in_lines(2, 200), in_lines(3, 20), in_lines(5, 14),
                      in_chunks(2, 20), in_chunks(2, 200), in_chunks(3, 20), in_chunks(5, 14)),
    [](const auto& info) {
      return std::to_string(info.param.ranks) + "RanksOf" + std::to_string(info.param.elements) +
             (info.param.on_one_core ? "OnOneCore" : "") +
             (info.param.inline_mode == shm::InlineMode::kAlways  ? "InlineChunks"
              : info.param.inline_mode == shm::InlineMode::kNever ? "InChunks"
                                                                  : "");
    });

}  // namespace
}  // namespace regroup::collective::testing::shm_fast_path
