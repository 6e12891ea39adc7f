// The verifier of `regroup bench`: it agrees with the collective tests' definitions of every
// operation, and it counts every element that is wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/collective/reference.h"
#include "tools/bench/verify.h"

namespace regroup::bench {
namespace {

using collective::Dtype;
using collective::Op;
using collective::testing::Bytes;

constexpr std::uint64_t kIteration = 5;
constexpr std::size_t kElements = 1500;  // of a block: more than the verifier takes at a time

Case make_case(const OperationSpec& spec, Dtype dtype, Op op) {
  return {&spec, dtype, op, 1, kElements * collective::size_of(dtype), !spec.out_of_place};
}

struct Rank {
  Bytes first, second;
  Call call;
};

// Ranks whose outputs are right.
std::vector<Rank> make_ranks(const Case& c, int ranks) {
  std::vector<Rank> out(static_cast<std::size_t>(ranks));
  std::vector<Bytes> inputs;
  for (int r = 0; r < ranks; ++r) {
    Rank& rank = out[static_cast<std::size_t>(r)];
    rank.first.resize(c.spec->size(c.block, ranks));
    rank.second.resize(rank.first.size());
    rank.call = make_call(c, r, ranks, rank.first, rank.second);
    fill(rank.call.input, c, r, kIteration);
    inputs.emplace_back(rank.call.input.begin(), rank.call.input.end());
  }
  for (int r = 0; r < ranks; ++r) {
    Call& call = out[static_cast<std::size_t>(r)].call;
    const bool message = call.receive.has_value();
    const Bytes right = message ? inputs[static_cast<std::size_t>((r + ranks - 1) % ranks)]
                                : collective::testing::reference_output(call.operation, inputs, r);
    std::ranges::copy(right, call.output.begin());
  }
  return out;
}

std::uint64_t wrong_of(const Case& c, const std::vector<Rank>& all,
                       std::uint64_t iteration = kIteration) {
  std::uint64_t wrong = 0;
  for (std::size_t r = 0; r < all.size(); ++r) {
    const auto parts = expected_parts(c, static_cast<int>(r), static_cast<int>(all.size()));
    wrong += count_wrong(all[r].call.output, parts, c, static_cast<int>(all.size()), iteration);
  }
  return wrong;
}

// Damages one element of each output; how many outputs there are.
std::uint64_t damage(std::vector<Rank>& all) {
  std::uint64_t outputs = 0;
  for (Rank& rank : all) {
    if (rank.call.output.empty()) continue;
    rank.call.output.back() ^= std::byte{1};
    ++outputs;
  }
  return outputs;
}

class BenchVerify : public testing::TestWithParam<std::string> {};

TEST_P(BenchVerify, AgreesWithTheDefinitionAndCountsWhatIsWrong) {
  const OperationSpec& spec = *find_operation(GetParam());
  for (const int ranks : {2, 3, 7}) {
    for (const Dtype dtype : collective::testing::kDtypes) {
      for (const Op op : collective::testing::kOperators) {
        if ((!spec.reduces && op != Op::kSum) || !can_reduce(op, dtype)) continue;
        const Case c = make_case(spec, dtype, op);
        auto all = make_ranks(c, ranks);
        EXPECT_EQ(wrong_of(c, all), 0U)
            << ranks << " " << collective::name_of(dtype) << " " << collective::name_of(op);
        const std::uint64_t outputs = damage(all);
        EXPECT_EQ(wrong_of(c, all), outputs)
            << collective::name_of(dtype) << " " << collective::name_of(op);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Operations, BenchVerify,
                         testing::Values("allreduce", "reduce_scatter", "allgather", "broadcast",
                                         "reduce", "alltoall", "gather", "scatter", "sendrecv"),
                         [](const auto& info) { return info.param; });

TEST(BenchVerifier, SeesWhatWasNotWritten) {
  for (const Dtype dtype : {Dtype::kFloat32, Dtype::kFloat16, Dtype::kInt64}) {
    const Case c = make_case(*find_operation("allreduce"), dtype, Op::kSum);
    auto all = make_ranks(c, 2);
    spoil(all[1].call.output);
    EXPECT_EQ(wrong_of(c, all), kElements);
  }
}

TEST(BenchVerifier, SeesAResultOfTheIterationBefore) {
  for (const char* name : {"allreduce", "allgather", "broadcast", "alltoall"}) {
    const Case c = make_case(*find_operation(name), Dtype::kFloat32, Op::kSum);
    const auto all = make_ranks(c, 2);
    std::uint64_t elements = 0;
    for (const Rank& rank : all) elements += rank.call.output.size() / sizeof(float);
    EXPECT_EQ(wrong_of(c, all, kIteration + 1), elements) << name;
  }
}

TEST(BenchVerifier, SeesBlocksThatChangedPlaces) {
  const Case c = make_case(*find_operation("alltoall"), Dtype::kFloat32, Op::kSum);
  auto all = make_ranks(c, 2);
  const auto out = all[0].call.output;
  std::swap_ranges(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(c.block),
                   out.begin() + static_cast<std::ptrdiff_t>(c.block));
  EXPECT_GT(wrong_of(c, all), 2 * kElements * 9 / 10);
}

}  // namespace
}  // namespace regroup::bench
