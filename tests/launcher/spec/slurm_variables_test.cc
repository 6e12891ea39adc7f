// What members and srun see of a Slurm job.
#include "launcher/spec/slurm_variables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace regroup::spec {
namespace {

using testing::ElementsAre;
using testing::Pair;

TEST(SlurmVariables, ReachMembersOnAllHosts) {
  const Environment job{{"SLURM_JOB_ID", "7"},       {"SLURM_JOB_NODELIST", "n[1-3]"},
                        {"SLURM_NNODES", "3"},       {"SLURM_TASKS_PER_NODE", "2(x3)"},
                        {"SLURM_NODEID", "0"},       {"SLURMD_NODENAME", "n1"},
                        {"SLURM_CPUS_ON_NODE", "8"}, {"PATH", "/bin"}};
  const Environment step{{"SLURM_JOB_ID", "7"},           {"SLURM_NNODES", "1"},
                         {"SLURM_TASKS_PER_NODE", "1"},   {"SLURM_NODEID", "0"},
                         {"SLURMD_NODENAME", "n3"},       {"SLURM_CPUS_ON_NODE", "4"},
                         {"SLURM_STEP_NUM_NODES", "1"},   {"SLURM_CPU_BIND", "quiet"},
                         {"SLURM_CONF", "/etc/own.conf"}, {"HOME", "/root"}};
  EXPECT_THAT(slurm_variables(job, step),
              ElementsAre(Pair("SLURMD_NODENAME", "n3"), Pair("SLURM_CONF", "/etc/own.conf"),
                          Pair("SLURM_CPUS_ON_NODE", "4"), Pair("SLURM_JOB_ID", "7"),
                          Pair("SLURM_JOB_NODELIST", "n[1-3]"), Pair("SLURM_NNODES", "3"),
                          Pair("SLURM_NODEID", "2"), Pair("SLURM_TASKS_PER_NODE", "2(x3)")));
}

TEST(SlurmVariables, AreThoseOfTheLendingJobOnALeasedHost) {
  const Environment first{{"SLURM_JOB_ID", "7"}, {"SLURM_NNODES", "3"}};
  const Environment lender{{"SLURM_JOB_ID", "8"}, {"SLURM_NNODES", "1"}, {"PATH", "/bin"}};
  EXPECT_THAT(slurm_variables(first, lender),
              ElementsAre(Pair("SLURM_JOB_ID", "8"), Pair("SLURM_NNODES", "1")));
}

TEST(SlurmVariables, SrunInheritsNoOptions) {
  EXPECT_THAT(without_srun_options({{"PATH", "/bin"},
                                    {"SLURM_CONF", "/etc/slurm.conf"},
                                    {"SLURM_CPU_BIND", "map_cpu:3"},
                                    {"SLURM_MEM_PER_CPU", "100"},
                                    {"SLURM_TRES_PER_TASK", "gres/gpu:1"},
                                    {"SRUN_CPUS_PER_TASK", "4"}}),
              ElementsAre(Pair("PATH", "/bin"), Pair("SLURM_CONF", "/etc/slurm.conf")));
}

}  // namespace
}  // namespace regroup::spec
