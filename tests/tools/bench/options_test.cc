// One table: the parser takes every option of it, and --help tells them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/bench/options.h"
#include "tools/bench/stats.h"

namespace regroup::bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Words = std::vector<std::string>;

std::string refusal(const Words& words) {
  auto options = parse_options(words);
  return options.ok() ? "accepted" : options.status().message();
}

TEST(BenchOptions, AreThoseOfNcclTests) {
  auto options = parse_options({"allreduce", "-b", "8", "-e", "1K", "-f", "4", "-d", "half,double",
                                "-o", "max", "-n", "7", "-w", "0", "--root=1"});
  ASSERT_TRUE(options.ok()) << options.status().message();
  EXPECT_EQ(options->operation->name, "allreduce");
  EXPECT_THAT(options->sizes(), ElementsAre(8, 32, 128, 512));
  EXPECT_THAT(options->dtypes,
              ElementsAre(collective::Dtype::kFloat16, collective::Dtype::kFloat64));
  EXPECT_THAT(options->ops, ElementsAre(collective::Op::kMax));
  EXPECT_EQ(options->iterations_of(8), 7U);
  EXPECT_EQ(options->warmups_of(8), 0U);
  EXPECT_EQ(options->root, 1U);
  EXPECT_THAT(parse_options({"-b", "5", "-e", "30", "-i", "10", "reduce-scatter"})->sizes(),
              ElementsAre(5, 15, 25));
  EXPECT_THAT(parse_options({"barrier"})->sizes(), ElementsAre(0));
  EXPECT_EQ(parse_options({"allreduce", "-d", "all", "--op", "all"})->dtypes.size(), 9U);
  EXPECT_TRUE(parse_options({"--help"})->help);
}

TEST(BenchOptions, MemoryAndRivals) {
  EXPECT_THAT(parse_options({"allreduce"})->memories,
              ElementsAre(Memory::kArena, Memory::kOrdinary));
  EXPECT_THAT(parse_options({"allreduce", "--memory", "arena"})->memories,
              ElementsAre(Memory::kArena));
  auto options = parse_options({"allreduce", "--compare", "openmpi=/opt/bin,gloo"});
  ASSERT_EQ(options->compare.size(), 2U);
  EXPECT_EQ(options->compare[0].name, "openmpi");
  EXPECT_EQ(options->compare[0].folder, "/opt/bin");
  EXPECT_EQ(options->compare[1].folder, "");
}

TEST(BenchOptions, WhatIsWrongIsNamed) {
  EXPECT_THAT(refusal({}), HasSubstr("expected an operation: allreduce, reduce_scatter"));
  EXPECT_THAT(refusal({"allredcue"}), HasSubstr("operation allredcue: expected one of allreduce"));
  EXPECT_EQ(refusal({"allreduce", "gather"}), "unexpected argument gather");
  EXPECT_EQ(refusal({"allreduce", "--minbyts", "8"}),
            "unknown option --minbyts; did you mean --minbytes?");
  EXPECT_EQ(refusal({"allreduce", "-b"}), "option -b: SIZE is missing");
  EXPECT_THAT(refusal({"allreduce", "-b", "x"}), HasSubstr("option -b x"));
  EXPECT_THAT(refusal({"allreduce", "-b", "16", "-e", "8"}), HasSubstr("expected -b <= -e"));
  EXPECT_THAT(refusal({"allreduce", "-b", "0"}), HasSubstr("option -b 0"));
  EXPECT_THAT(refusal({"allreduce", "-f", "1"}),
              HasSubstr("option -f 1: expected a whole number >= 2"));
  EXPECT_THAT(refusal({"allreduce", "-n", "0"}),
              HasSubstr("option -n 0: expected a whole number >= 1"));
  EXPECT_THAT(refusal({"allreduce", "-d", "float8"}),
              HasSubstr("option -d float8: expected float32"));
  EXPECT_THAT(refusal({"allreduce", "-o", "band"}), HasSubstr("bit operations require integers"));
  EXPECT_THAT(refusal({"allreduce", "--memory", "gpu"}), HasSubstr("arena, ordinary or both"));
  EXPECT_THAT(refusal({"allreduce", "--compare", "nccl"}), HasSubstr("openmpi, mpich or gloo"));
  EXPECT_THAT(refusal({"allreduce", "--plot", "a.svg"}), HasSubstr("ends in .png"));
  EXPECT_THAT(refusal({"allreduce", "-e", "64M", "-i", "8"}), HasSubstr("more than 4096 sizes"));
  EXPECT_THAT(refusal({"allreduce", "--help=1"}), HasSubstr("takes no value"));
}

TEST(BenchOptions, HelpKnowsThem) {
  const std::string help = help_text();
  for (const char* each :
       {"--minbytes SIZE", "--memory WHICH", "--compare RIVALS", "--plot FILE.png", "sendrecv"})
    EXPECT_THAT(help, HasSubstr(each));
}

TEST(BenchStats, PercentilesAreNearestRank) {
  std::vector<double> hundred;
  for (int i = 100; i > 0; --i) hundred.push_back(i);
  const Stats stats = summarize({hundred});
  EXPECT_EQ(stats.min, 1);
  EXPECT_EQ(stats.p50, 50);
  EXPECT_EQ(stats.p99, 99);
  EXPECT_EQ(stats.max, 100);
  EXPECT_EQ(stats.samples, 100U);
  EXPECT_DOUBLE_EQ(stats.mean, 50.5);
}

TEST(BenchStats, RatiosAreOfPairs) {
  EXPECT_DOUBLE_EQ(paired_ratio({{2, 2, 100}, {20}, {9}}, {{1}, {10}, {1}}), 2);
  EXPECT_DOUBLE_EQ(median({1, 4, 2, 3}), 2.5);
}

}  // namespace
}  // namespace regroup::bench
