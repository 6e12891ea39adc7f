// Process ids and environments as /proc has them.
#include "launcher/process/proc_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace regroup::process {
namespace {

using namespace std::string_view_literals;

TEST(ProcFiles, ListThisProcess) { EXPECT_THAT(all_processes(), testing::Contains(::getpid())); }

TEST(ProcFiles, MatchesWholeEntriesOnly) {
  for (const std::string_view environment : {"A=1\0B=2\0"sv, "B=2\0A=1"sv, "A=1"sv})
    EXPECT_TRUE(has_variable(environment, "A=1")) << environment;
  for (const std::string_view environment : {"A=12\0"sv, "BA=1\0"sv, "B=A=1\0"sv, ""sv})
    EXPECT_FALSE(has_variable(environment, "A=1")) << environment;
  EXPECT_TRUE(has_variable("A=1x\0A=1\0"sv, "A=1"));
}

}  // namespace
}  // namespace regroup::process
