// The figures of `regroup bench` are those that docs/guide/collectives.md says: bus bandwidth by
// the factors of nccl-tests (doc/PERFORMANCE.md there), and percentages of what a copy and a bare
// loop take.
#include "tools/bench/report.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace regroup::bench {
namespace {

constexpr int kRanks = 4;
constexpr std::size_t kSize = 4'000'000;
// Microseconds: medians of two rounds. The means differ, since the first operation of a round was
// slow.
const Blocks kTimes{{500, 100, 100}, {300, 200, 200}};
const Blocks kCopy{{50, 50, 50}, {100, 100, 100}};
const Blocks kBare{{80, 80, 80}, {160, 160, 160}};
constexpr double kMean = 1400.0 / 6;

struct Factors {
  double bus;
  double traffic;  // bytes / size
};
// Factors for four ranks.
const std::map<std::string, Factors> kFactors = {
    {"allreduce", {2 * 3. / 4, 5}},
    {"reduce_scatter", {3. / 4, 5}},
    {"allgather", {3. / 4, 5}},
    {"broadcast", {1, 4}},
    {"reduce", {1, 5}},
    {"alltoall", {3. / 4, 8}},
    {"gather", {3. / 4, 2}},
    {"scatter", {3. / 4, 2}},
    {"sendrecv", {1, 8}},
    {"barrier", {1, 0}},
};

SizeResult result_of(const OperationSpec& spec) {
  SizeResult out{.c = {.spec = &spec},
                 .size = kSize,
                 .rows = {},
                 .copy = Series{0, kCopy},
                 .bare = Series{0, kBare},
                 .rivals = {}};
  out.c.block = spec.block(kSize, kRanks, out.c.dtype);
  out.rows.push_back({Memory::kArena, Series{0, kTimes}, std::nullopt});
  return out;
}

TEST(BenchReport, HasTheFactorsOfEveryOperation) {
  ASSERT_EQ(operations().size(), kFactors.size());
  for (const OperationSpec& spec : operations()) {
    const Factors& want = kFactors.at(std::string(spec.name));
    EXPECT_DOUBLE_EQ(spec.bus(kRanks), want.bus) << spec.name;
    EXPECT_DOUBLE_EQ(spec.traffic(kRanks), want.traffic) << spec.name;
  }
}

// Four ranks that copy move 8 sizes in half of the time.
TEST(BenchReport, ComparesWithACopyAndABareLoop) {
  for (const OperationSpec& spec : operations()) {
    const SizeResult result = result_of(spec);
    const double traffic = kFactors.at(std::string(spec.name)).traffic;
    const auto copy = copy_percent(result, result.rows[0].main(), kRanks);
    EXPECT_EQ(copy.has_value(), traffic > 0) << spec.name;
    EXPECT_DOUBLE_EQ(copy.value_or(0), 100 * traffic / 8 / 2) << spec.name;
    EXPECT_DOUBLE_EQ(bare_percent(result, result.rows[0].main()).value_or(0), 80) << spec.name;
  }
}

TEST(BenchReport, WritesBandwidthsOfTheMeanTime) {
  for (const OperationSpec& spec : operations()) {
    Options options;
    options.operation = &spec;
    const auto json = nlohmann::json::parse(json_of(options, kRanks, {}, {result_of(spec)}));
    const auto& row = json.at("rows").at(0).at("memory").at("arena").at("out_of_place");
    const double gbs = static_cast<double>(kSize) / kMean / 1e3;
    EXPECT_DOUBLE_EQ(row.at("mean_us"), kMean) << spec.name;
    EXPECT_DOUBLE_EQ(row.at("algbw_gbs"), gbs) << spec.name;
    EXPECT_DOUBLE_EQ(row.at("busbw_gbs"), gbs * kFactors.at(std::string(spec.name)).bus)
        << spec.name;
  }
}

TEST(BenchReport, SaysNothingWhereThereIsNothingToCompareWith) {
  SizeResult result = result_of(*find_operation("allreduce"));
  result.bare.reset();
  result.copy->blocks.pop_back();  // a round of one side only
  EXPECT_FALSE(copy_percent(result, result.rows[0].main(), kRanks).has_value());
  EXPECT_FALSE(bare_percent(result, result.rows[0].main()).has_value());
}

}  // namespace
}  // namespace regroup::bench
