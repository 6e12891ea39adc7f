// Programs in PATH, and the variables of a member.
#include "launcher/process/environment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace regroup::process {
namespace {

class FindProgram : public testing::Test {
 protected:
  FindProgram() {
    char name[] = "/tmp/find-program-XXXXXX";
    folder_ = ::mkdtemp(name);
    std::ofstream(folder_ + "/tool") << "#!/bin/sh\n";
    ::chmod((folder_ + "/tool").c_str(), 0755);
    std::ofstream(folder_ + "/text") << "no program\n";
    ::mkdir((folder_ + "/sub").c_str(), 0755);
  }
  ~FindProgram() override {
    for (const char* name : {"/tool", "/text"}) ::unlink((folder_ + name).c_str());
    ::rmdir((folder_ + "/sub").c_str());
    ::rmdir(folder_.c_str());
  }
  std::string folder_;
};

TEST_F(FindProgram, SearchesPathInOrder) {
  const spec::Environment environment{{"PATH", "/nonexistent:" + folder_}};
  auto found = find_program("tool", "", environment);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(*found, folder_ + "/tool");
}

TEST_F(FindProgram, NamesProgramAndPathIfNoneIsFound) {
  auto found = find_program("nosuch", "", {{"PATH", folder_}});
  EXPECT_EQ(found.code(), base::Code::kNotFound);
  EXPECT_EQ(found.status().message(), "program nosuch was not found in PATH=" + folder_);
}

TEST_F(FindProgram, RefusesFoldersWithTheReason) {
  EXPECT_EQ(find_program(folder_ + "/sub", "", {}).status().message(),
            "program " + folder_ + "/sub cannot be started: Is a directory");
  EXPECT_EQ(find_program("./nosuch", folder_, {}).status().message(),
            "program ./nosuch cannot be started: No such file or directory");
}

TEST_F(FindProgram, ResolvesPathsFromTheWorkingFolder) {
  auto found = find_program("./tool", folder_, {});
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(*found, "./tool");
}

TEST_F(FindProgram, SearchesTheMembersFolderAfterPath) {
  EXPECT_EQ(*find_member_program("tool", folder_, {{"PATH", "/nonexistent"}}), "./tool");
  EXPECT_EQ(find_member_program("text", folder_, {{"PATH", "/nonexistent"}}).status().message(),
            "program text was not found in PATH=/nonexistent");
  EXPECT_EQ(find_member_program("nosuch", folder_, {{"PATH", folder_}}).code(),
            base::Code::kNotFound);
}

TEST_F(FindProgram, RefusesAFolderThatCannotBeEntered) {
  EXPECT_TRUE(check_wdir("").ok());
  EXPECT_TRUE(check_wdir(folder_).ok());
  EXPECT_EQ(check_wdir(folder_ + "/gone").message(),
            "--wdir " + folder_ + "/gone: No such file or directory");
  EXPECT_EQ(check_wdir(folder_ + "/tool").code(), base::Code::kInvalidArgument);
}

TEST(MemberEnvironment, AddsTheMembersPlaceAndKeepsOtherVariables) {
  const spec::Environment base{{"A", "1"}, {"OMPI_MCA_btl", "self"}, {"PMIX_MCA_gds", "hash"}};
  const spec::Environment fixed = member_environment(base, {3, 3, 4}, "job", {.port = 1234}, "", 2);
  EXPECT_EQ(fixed.at("A"), "1");
  EXPECT_EQ(fixed.at("RANK"), "3");
  EXPECT_EQ(fixed.at("WORLD_SIZE"), "4");
  EXPECT_EQ(fixed.at("LOCAL_RANK"), "3");
  EXPECT_EQ(fixed.at("LOCAL_WORLD_SIZE"), "4");
  EXPECT_EQ(fixed.at("MASTER_ADDR"), "127.0.0.1");
  EXPECT_EQ(fixed.at("MASTER_PORT"), "1234");
  EXPECT_EQ(fixed.at("OMP_NUM_THREADS"), "2");
  EXPECT_EQ(fixed.at("REGROUP_JOB"), "job");
  EXPECT_EQ(fixed.at("OMPI_COMM_WORLD_RANK"), "3");
  EXPECT_EQ(fixed.at("OMPI_COMM_WORLD_LOCAL_SIZE"), "4");
  EXPECT_EQ(fixed.at("GROUP_RANK"), "0");
  EXPECT_EQ(fixed.at("ROLE_RANK"), "3");
  EXPECT_EQ(fixed.at("ROLE_WORLD_SIZE"), "4");
  EXPECT_EQ(fixed.at("TORCHELASTIC_RUN_ID"), "job");
  EXPECT_EQ(fixed.at("OMPI_MCA_orte_hnp_uri"), "0.0;tcp://127.0.0.1:1234");
  EXPECT_EQ(fixed.at("JAX_COORDINATOR_PORT"), "1234");
  EXPECT_EQ(fixed.at("OMPI_MCA_btl"), "self");
  EXPECT_EQ(fixed.at("PMIX_MCA_gds"), "hash");
  const spec::Environment elastic =
      member_environment({{"OMP_NUM_THREADS", "2"}}, {9, 1, 2}, "job", {.port = 1}, "/s", 1);
  EXPECT_EQ(elastic.at("OMP_NUM_THREADS"), "2");
  EXPECT_EQ(elastic.at("REGROUP_AGENT"), "/s");
  EXPECT_EQ(elastic.at("REGROUP_MEMBER"), "9");
  EXPECT_FALSE(elastic.contains("OMPI_COMM_WORLD_RANK"));  // its rank changes
  EXPECT_FALSE(elastic.contains("GROUP_RANK"));
  EXPECT_FALSE(elastic.contains("OMPI_MCA_orte_hnp_uri"));
  const spec::Environment v6 =
      member_environment({}, {0, 0, 1}, "job", {.address = "fd00::2", .port = 1}, "", 1);
  EXPECT_EQ(v6.at("OMPI_MCA_orte_hnp_uri"), "0.0;tcp6://[fd00::2]:1");
  Place spawned{0, 0, 1};
  spawned.space = 1;
  EXPECT_FALSE(
      member_environment({}, spawned, "job", {.port = 1}, "", 1).contains("OMPI_MCA_orte_hnp_uri"));
}

TEST(MemberEnvironment, NumbersRanksInSlurmWhereTheBatchScriptIsNumbered) {
  const spec::Environment script{{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}};
  Place place{3, 3, 4};
  place.local_rank = 1;
  const spec::Environment fixed = member_environment(script, place, "job", {.port = 1}, "", 1);
  EXPECT_EQ(fixed.at("SLURM_PROCID"), "3");
  EXPECT_EQ(fixed.at("SLURM_LOCALID"), "1");
  EXPECT_FALSE(member_environment({}, place, "job", {.port = 1}, "", 1).contains("SLURM_PROCID"));
}

TEST(MemberEnvironment, NamesTheProgramForMpiInfoEnv) {
  spec::Environment environment{{"OMPI_COMMAND", "of -x"}};
  add_program({"train", "a", "b c"}, environment);
  EXPECT_EQ(environment.at("OMPI_COMMAND"), "of -x");
  EXPECT_EQ(environment.at("OMPI_ARGV"), "a b c");
  spec::Environment long_ones;
  add_program({"train", std::string(1 << 20, 'x')}, long_ones);
  EXPECT_EQ(long_ones.at("OMPI_COMMAND"), "train");
  EXPECT_FALSE(long_ones.contains("OMPI_ARGV")) << "exec would fail";
}

// Members of an elastic job compute each other's shards, on whatever GPU they have.
TEST(MemberEnvironment, LetsGpusRepeatTheirResultsInElasticJobsOnly) {
  const std::string name = "CUBLAS_WORKSPACE_CONFIG";
  const auto elastic = [](const spec::Environment& base) {
    return member_environment(base, {9, 1, 2}, "job", {.port = 1}, "/s", 1);
  };
  EXPECT_EQ(elastic({}).at(name), ":4096:8");
  EXPECT_EQ(elastic({{name, ":16:8"}}).at(name), ":16:8");
  EXPECT_FALSE(member_environment({}, {9, 1, 2}, "job", {.port = 1}, "", 1).contains(name));
}

TEST(MemberEnvironment, KeepsVariablesThatTheUserHasSet) {
  const spec::Environment base{
      {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "80"}, {"OMP_NUM_THREADS", "7"}};
  const spec::Environment member =
      member_environment(base, {0, 0, 1}, "job", {.port = 1234}, "", 2);
  for (const auto& [name, value] : base) EXPECT_EQ(member.at(name), value);
}

// As after an upgrade meanwhile: agents are started by it.
TEST(OwnProgram, KeepsItsPathWhenItsFileIsGone) {
  if (const char* path = std::getenv("REGROUP_TEST_COPY")) {
    EXPECT_EQ(own_program(), path);
    ASSERT_EQ(::unlink(path), 0);
    EXPECT_EQ(own_program(), path);
    return;
  }
  char name[] = "/tmp/own-program-XXXXXX";
  const std::string folder = ::mkdtemp(name), copy = folder + "/copy";
  std::filesystem::copy_file("/proc/self/exe", copy);
  ASSERT_EQ(::setenv("REGROUP_TEST_COPY", copy.c_str(), 1), 0);
  EXPECT_EQ(std::system((copy + " --gtest_filter=OwnProgram.*").c_str()), 0);
  ::unsetenv("REGROUP_TEST_COPY");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace regroup::process
