// Which launch a process belongs to, by the variables of launchers and the processes above it.
#include "elastic/detected_launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace regroup::elastic {
namespace {

using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

base::Result<std::optional<DetectedLaunch>> find(const Variables& own,
                                                 const std::vector<Ancestor>& above = {}) {
  return find_launch(
      [&](const std::string& name) {
        const auto found = own.find(name);
        return found == own.end() ? std::string() : found->second;
      },
      above);
}

Variables openmpi(int rank, int size, int here, const std::string& space = "1234") {
  return {{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
          {"OMPI_COMM_WORLD_SIZE", std::to_string(size)},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(here)},
          {"PMIX_NAMESPACE", space}};
}

Variables hydra(int rank, int size, int here) {
  return {{"PMI_RANK", std::to_string(rank)},
          {"PMI_SIZE", std::to_string(size)},
          {"MPI_LOCALNRANKS", std::to_string(here)}};
}

Variables srun(int rank, int size, int nodes, const std::string& step = "3") {
  return {{"SLURM_JOB_ID", "77"},
          {"SLURM_STEP_ID", step},
          {"SLURM_PROCID", std::to_string(rank)},
          {"SLURM_STEP_NUM_TASKS", std::to_string(size)},
          {"SLURM_STEP_NUM_NODES", std::to_string(nodes)},
          {"SLURM_NTASKS", std::to_string(size)}};
}

Variables torchrun(int rank, int size, int here, int restarts = 0) {
  return {{"TORCHELASTIC_RUN_ID", "none"},
          {"TORCHELASTIC_RESTART_COUNT", std::to_string(restarts)},
          {"MASTER_ADDR", "node7"},
          {"MASTER_PORT", "29500"},
          {"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(size)},
          {"LOCAL_WORLD_SIZE", std::to_string(here)}};
}

Variables operator+(Variables a, const Variables& b) {
  for (const auto& [name, value] : b) a[name] = value;
  return a;
}

struct Told {
  const char* what;
  Variables own;
  std::vector<Ancestor> above;
  std::string by;  // "": alone
  std::uint32_t rank = 0, size = 1;
  bool one_host = true;
};

TEST(LaunchTest, VariablesAndTheProcessesAboveTellTheLauncher) {
  const Variables leftover{{"SLURM_JOB_ID", "77"}, {"SLURM_NTASKS", "4"}, {"SLURM_NPROCS", "4"}};
  const std::vector<Told> all = {
      {"nothing", {}, {}, ""},
      {"a role",
       openmpi(2, 3, 3, "regroup-ab.0") + Variables{{"REGROUP_JOB", "ab"},
                                                    {"REGROUP_ROLE", "worker"},
                                                    {"REGROUP_ROLE_RANK", "1"},
                                                    {"REGROUP_ROLE_SIZE", "2"},
                                                    {"REGROUP_ROLE_LOCAL_SIZE", "2"}},
       {},
       "regroup --role",
       1,
       2},
      {"a role of one",
       openmpi(0, 3, 3, "regroup-ab.0") + Variables{{"REGROUP_JOB", "ab"},
                                                    {"REGROUP_ROLE", "chief"},
                                                    {"REGROUP_ROLE_RANK", "0"},
                                                    {"REGROUP_ROLE_SIZE", "1"},
                                                    {"REGROUP_ROLE_LOCAL_SIZE", "1"}},
       {},
       ""},
      {"mpirun", openmpi(1, 4, 4), {{9, "5", "mpirun", {}}}, "mpirun", 1, 4},
      {"mpirun on hosts", openmpi(1, 4, 2), {}, "mpirun", 1, 4, false},
      {"mpirun -np 1", openmpi(0, 1, 1), {}, ""},
      {"regroup",
       openmpi(1, 2, 2, "regroup-ab.0") + Variables{{"REGROUP_JOB", "ab"}},
       {},
       "regroup",
       1,
       2},
      {"regroup with torchrun's variables",
       openmpi(1, 2, 2, "regroup-ab.0") + torchrun(1, 2, 2) +
           Variables{{"REGROUP_JOB", "ab"}, {"TORCHELASTIC_RUN_ID", "ab"}},
       {},
       "regroup",
       1,
       2},
      {"hydra", hydra(2, 3, 3), {}, "mpiexec", 2, 3},
      {"hydra on hosts", hydra(2, 3, 2), {}, "mpiexec", 2, 3, false},
      {"srun", srun(1, 2, 1), {}, "srun", 1, 2},
      {"srun on nodes", srun(1, 2, 2), {}, "srun", 1, 2, false},
      {"srun -n 1", srun(0, 1, 1), {}, ""},
      {"a shell of salloc", leftover, {}, ""},
      {"the interactive step of salloc", srun(0, 4, 1, "4294967290"), {}, ""},
      {"a batch script", srun(0, 4, 1, "4294967291"), {}, ""},
      {"a batch script, older", leftover + Variables{{"SLURM_PROCID", "0"}}, {}, ""},
      {"mpirun in salloc", openmpi(0, 2, 2) + leftover, {}, "mpirun", 0, 2},
      {"mpirun in an srun",
       openmpi(0, 2, 2) + srun(1, 2, 1),
       {{9, "", "mpirun", srun(1, 2, 1)}},
       "mpirun",
       0,
       2},
      {"mpirun -np 1 in an srun",
       openmpi(0, 1, 1) + srun(1, 2, 1),
       {{9, "", "mpirun", srun(1, 2, 1)}},
       ""},
      {"srun in an mpirun",
       openmpi(0, 3, 3) + srun(1, 2, 1),
       {{9, "", "slurmstepd", openmpi(0, 3, 3)}},
       "srun",
       1,
       2},
      {"regroup in an srun",
       openmpi(1, 2, 2) + srun(3, 4, 1),
       {{8, "", "sh", openmpi(1, 2, 2) + srun(3, 4, 1)}, {9, "", "regroup-agent", srun(3, 4, 1)}},
       "mpirun",
       1,
       2},
      {"torchrun", torchrun(1, 2, 2), {}, "torchrun", 1, 2},
      {"torchrun on hosts", torchrun(1, 4, 2), {}, "torchrun", 1, 4, false},
      {"torchrun in srun -n 1", torchrun(1, 2, 2) + srun(0, 1, 1), {}, "torchrun", 1, 2},
      {"mpirun in a torchrun",
       torchrun(0, 2, 2) + openmpi(1, 3, 3),
       {{9, "", "mpirun", torchrun(0, 2, 2)}},
       "mpirun",
       1,
       3},
      {"RANK and WORLD_SIZE alone", {{"RANK", "0"}, {"WORLD_SIZE", "2"}}, {}, ""},
      {"deepspeed",
       {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}},
       {},
       "a launcher that sets RANK and WORLD_SIZE",
       1,
       2},
      {"pods of a PyTorchJob",
       {{"RANK", "1"},
        {"WORLD_SIZE", "2"},
        {"MASTER_ADDR", "train-master-0"},
        {"MASTER_PORT", "23456"}},
       {},
       "a launcher that sets RANK and WORLD_SIZE",
       1,
       2,
       false},
      {"a PMI of which no more is known",
       {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}},
       {},
       "a PMI launcher",
       1,
       2,
       false},
  };
  for (const Told& told : all) {
    const auto launch = find(told.own, told.above);
    ASSERT_TRUE(launch.ok()) << told.what << ": " << launch.status().message();
    ASSERT_EQ(launch->has_value(), !told.by.empty()) << told.what;
    if (!launch->has_value()) continue;
    EXPECT_EQ((*launch)->by, told.by) << told.what;
    EXPECT_EQ((*launch)->rank, told.rank) << told.what;
    EXPECT_EQ((*launch)->size, told.size) << told.what;
    EXPECT_EQ((*launch)->one_host, told.one_host) << told.what;
  }
}

std::string key(const Variables& own, const std::vector<Ancestor>& above = {}) {
  const auto launch = find(own, above);
  return launch.ok() && launch->has_value() ? (*launch)->key : "";
}

TEST(LaunchTest, RanksOfOneLaunchShareAKeyThatOthersLack) {
  EXPECT_EQ(key(openmpi(0, 2, 2)), key(openmpi(1, 2, 2)));
  EXPECT_NE(key(openmpi(0, 2, 2, "a")),
            key(openmpi(0, 2, 2, "b")));  // two jobs, or a world that was spawned
  EXPECT_EQ(key(torchrun(0, 2, 2)), key(torchrun(1, 2, 2)));
  EXPECT_NE(key(torchrun(0, 2, 2, 0)), key(torchrun(0, 2, 2, 1)));  // --max-restarts
  EXPECT_NE(key(srun(0, 2, 1, "0")), key(srun(0, 2, 1, "1")));
  // Two jobs of hydra differ by the process that starts their ranks alone.
  const auto under = [](int rank, pid_t proxy) {
    const Ancestor shell{proxy + 10 + rank, "", "sh", hydra(rank, 2, 2)};
    return key(hydra(rank, 2, 2), {shell, {proxy, "17", "hydra_pmi_proxy", {}}});
  };
  EXPECT_EQ(under(0, 100), under(1, 100));
  EXPECT_NE(under(0, 100), under(0, 200));
}

TEST(LaunchTest, TheProcessThatStartsAllRanksIsKnownByItsName) {
  const auto started_by = [](const std::string& name) {
    return find(openmpi(0, 2, 2), {{50, "", "sh", openmpi(0, 2, 2)}, {9, "", name, {}}});
  };
  for (const char* name : {"mpirun", "mpirun.openmpi", "prterun", "regroup-agent"}) {
    const auto launch = started_by(name);
    ASSERT_TRUE(launch.ok() && launch->has_value()) << name;
    EXPECT_EQ((*launch)->starter, 9);
    EXPECT_TRUE((*launch)->by_launcher) << name;
  }
  EXPECT_FALSE((*started_by("bash"))->by_launcher);
}

TEST(LaunchTest, AProcessThatARankStartedAfterItHadJoinedIsNotTheRank) {
  const Variables own = openmpi(1, 2, 2);
  const Ancestor joined{50, "", "python", own, /*joined=*/true}, mpirun{9, "", "mpirun", {}};
  const auto inside = find(own, {joined, mpirun});
  ASSERT_TRUE(inside.ok() && inside->has_value());
  EXPECT_EQ((*inside)->rank_joined, 50);
  // A process that has joined above the launcher belongs to another launch.
  const auto below = find(own, {mpirun, {50, "", "python", {}, /*joined=*/true}});
  ASSERT_TRUE(below.ok() && below->has_value());
  EXPECT_EQ((*below)->rank_joined, 0);
}

TEST(LaunchTest, ARankOfAnUnknownNumberIsRefused) {
  for (const char* name : {"PMIX_RANK", "PALS_RANKID", "ALPS_APP_PE", "PMI_FORK_RANK"}) {
    EXPECT_THAT(find({{name, "1"}}).status().message(),
                HasSubstr(std::string(name) + "=1 marks this process"))
        << name;
    EXPECT_TRUE(find({{name, "0"}}).ok()) << name;  // may be the only one
    EXPECT_TRUE(find({{name, "1"}, {"REGROUP_AGENT", "/run/agent"}}).ok()) << name;
    const Variables role{{"REGROUP_JOB", "ab"},
                         {"REGROUP_ROLE", "chief"},
                         {"REGROUP_ROLE_RANK", "0"},
                         {"REGROUP_ROLE_SIZE", "1"}};
    EXPECT_TRUE(find(role + Variables{{name, "1"}}).ok()) << name;
  }
}

TEST(LaunchTest, RecognisesHorovodrun) {
  const auto launch =
      find({{"HOROVOD_RANK", "1"}, {"HOROVOD_SIZE", "2"}, {"HOROVOD_LOCAL_SIZE", "2"}});
  ASSERT_TRUE(launch.ok() && launch->has_value());
  EXPECT_EQ((*launch)->by, "horovodrun");
  EXPECT_EQ((*launch)->rank, 1U);
  EXPECT_TRUE((*launch)->one_host);
}

TEST(LaunchTest, VariablesThatContradictEachOtherAreNamed) {
  const auto launch = find(openmpi(4, 2, 2));
  EXPECT_EQ(launch.code(), base::Code::kInvalidArgument);
  EXPECT_THAT(launch.status().message(),
              HasSubstr("OMPI_COMM_WORLD_RANK=4, OMPI_COMM_WORLD_SIZE=2"));
}

}  // namespace
}  // namespace regroup::elastic
