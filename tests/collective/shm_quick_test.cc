// Small operations that come again, more of them than a member keeps in mind: each goes by its own plan, and
// what the ranks disagree on is named as it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <regex>

#include "collective/shm/factory.h"
#include "tests/collective/harness.h"

namespace regroup::collective::testing {
namespace {

using core::Code;
using ::testing::HasSubstr;

constexpr int kSize = 2;

std::unique_ptr<Communicator> open_comm(const core::Arena& arena, int slot) {
  auto comm = make_shm(arena, make_world(1, kSize), {0, static_cast<core::SlotIndex>(slot)});
  EXPECT_TRUE(comm.ok()) << comm.status().to_string();
  return std::move(comm).value();
}

// Allreduces of bytes that are all 3 in one rank and all 5 in the other. Up to 56 of them travel in the
// arrival.
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

TEST(ShmQuick, OperationsComeAgainInAnyOrder) {
  constexpr int kRounds = 3000;
  const core::Arena arena = make_arena({.slots = kSize});
  run_all(Ranks::kThreads, kSize, [&](int rank) {
    const auto comm = open_comm(arena, rank);
    Bytes from(512);  // the same for all cases, which differ in nothing else
    Bytes to(512);
    std::mt19937_64 random(11);
    for (int round = 0; round < kRounds; ++round) {
      const std::size_t at = round < kRounds / 2 ? random() % std::size(kCases)
                                                 : static_cast<std::size_t>(round) % std::size(kCases);
      const Case& c = kCases[at];
      const auto in = std::span(from).first(c.bytes);
      const auto out = std::span(to).first(c.bytes);
      std::ranges::fill(in, rank == 0 ? std::byte{3} : std::byte{5});
      std::ranges::fill(out, std::byte{0xee});
      ASSERT_EQ(comm->run(Operation::allreduce(in, out, c.dtype, c.op), soon()).to_string(), "ok") << round;
      ASSERT_EQ(Bytes(out.begin(), out.end()), Bytes(c.bytes, c.expected))
          << "round " << round << ", case " << at;
      if (random() % 5 != 0) continue;
      ASSERT_EQ(comm->barrier(soon()).to_string(), "ok") << round;
    }
  });
}

// Rank 1 ends with another operation than rank 0, behind `before` of the same.
TEST(ShmQuick, ADifferenceIsNamedBehindOperationsThatWereTheSame) {
  for (int before = 1; before < 6; ++before) {
    const core::Arena arena = make_arena({.slots = kSize});
    run_all(Ranks::kThreads, kSize, [&](int rank) {
      const auto comm = open_comm(arena, rank);
      Bytes in(16);
      Bytes out(16);
      for (int i = 0; i < before; ++i) {
        const auto kind = i % 3 == 2 ? Op::kMax : Op::kSum;
        ASSERT_TRUE(comm->run(Operation::allreduce(in, out, Dtype::kInt32, kind), soon()).ok());
      }
      const std::size_t bytes = rank == 0 ? 16 : 8;
      const core::Status status = comm->run(
          Operation::allreduce(Input(in).first(bytes), Output(out).first(bytes), Dtype::kInt32), soon());
      EXPECT_EQ(status.code(), Code::kInvalidArgument);
      const std::string seen = std::regex_replace(status.message(), std::regex(" is in "), " in ");
      EXPECT_THAT(seen, HasSubstr("rank 0 in allreduce of 16 bytes (int32, sum)")) << before;
      EXPECT_THAT(seen, HasSubstr("rank 1 in allreduce of 8 bytes (int32, sum)")) << before;
    });
  }
}

}  // namespace
}  // namespace regroup::collective::testing
