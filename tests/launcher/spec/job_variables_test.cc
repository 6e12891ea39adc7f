// What members, and the commands that start agents, see of a job's variables.
#include "launcher/spec/job_variables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace regroup::spec {
namespace {

using testing::ElementsAre;
using testing::Pair;
using testing::UnorderedElementsAre;

// What a member sees on a host whose agent has `own`.
Environment seen(Environment sent, Environment own) {
  share_job_variables(sent, own);
  sent.merge(own);
  return sent;
}

TEST(JobVariables, OfSlurmReachMembersOnAllHosts) {
  const Environment job{{"SLURM_JOB_ID", "7"},       {"SLURM_JOB_NODELIST", "n[1-3]"},
                        {"SLURM_NNODES", "3"},       {"SLURM_TASKS_PER_NODE", "2(x3)"},
                        {"SLURM_NODEID", "0"},       {"SLURMD_NODENAME", "n1"},
                        {"SLURM_CPUS_ON_NODE", "8"}, {"PATH", "/bin"}};
  const Environment step{{"SLURM_JOB_ID", "7"},           {"SLURM_NNODES", "1"},
                         {"SLURM_TASKS_PER_NODE", "1"},   {"SLURM_NODEID", "0"},
                         {"SLURMD_NODENAME", "n3"},       {"SLURM_CPUS_ON_NODE", "4"},
                         {"SLURM_STEP_NUM_NODES", "1"},   {"SLURM_CPU_BIND", "quiet"},
                         {"SLURM_CONF", "/etc/own.conf"}, {"HOME", "/root"}};
  EXPECT_THAT(seen(job, step),
              ElementsAre(Pair("HOME", "/root"), Pair("PATH", "/bin"),
                          Pair("SLURMD_NODENAME", "n3"), Pair("SLURM_CONF", "/etc/own.conf"),
                          Pair("SLURM_CPUS_ON_NODE", "4"), Pair("SLURM_JOB_ID", "7"),
                          Pair("SLURM_JOB_NODELIST", "n[1-3]"), Pair("SLURM_NNODES", "3"),
                          Pair("SLURM_NODEID", "2"), Pair("SLURM_TASKS_PER_NODE", "2(x3)")));
}

TEST(JobVariables, ReachMembersWhoseAgentsCameBySsh) {
  const Environment login{{"HOME", "/root"}};
  EXPECT_THAT(
      seen({{"SLURM_JOB_ID", "7"}, {"SLURM_NNODES", "2"}, {"SLURMD_NODENAME", "n1"}}, login),
      ElementsAre(Pair("HOME", "/root"), Pair("SLURM_JOB_ID", "7"), Pair("SLURM_NNODES", "2")));
  EXPECT_THAT(
      seen({{"PBS_JOBID", "9.s"}, {"PBS_NODEFILE", "/var/9"}, {"PBS_NODENUM", "0"}}, login),
      ElementsAre(Pair("HOME", "/root"), Pair("PBS_JOBID", "9.s"), Pair("PBS_NODEFILE", "/var/9")));
}

TEST(JobVariables, AreThoseOfTheLendingJobOnALeasedHost) {
  EXPECT_THAT(seen({{"SLURM_JOB_ID", "7"}, {"SLURM_NNODES", "3"}},
                   {{"SLURM_JOB_ID", "8"}, {"SLURM_NNODES", "1"}}),
              ElementsAre(Pair("SLURM_JOB_ID", "8"), Pair("SLURM_NNODES", "1")));
  EXPECT_THAT(seen({{"LSB_JOBID", "7"}, {"LSB_QUEUE", "short"}}, {{"LSB_JOBID", "8"}}),
              ElementsAre(Pair("LSB_JOBID", "8")));
  EXPECT_THAT(seen({{"PATH", "/bin"}}, {{"PBS_JOBID", "8"}}),
              ElementsAre(Pair("PATH", "/bin"), Pair("PBS_JOBID", "8")));
}

TEST(JobVariables, OfLsfAreTheJobsButForThoseOfAHost) {
  EXPECT_THAT(seen({{"LSB_JOBID", "7"},
                    {"LSB_MCPU_HOSTS", "hA 2 hB 2"},
                    {"LS_JOBPID", "100"},
                    {"LSB_BIND_CPU_LIST", "0-3"},
                    {"LSF_BINDIR", "/lsf/a"}},
                   {{"LSB_JOBID", "7"},
                    {"LSB_MCPU_HOSTS", "hB 2"},
                    {"LS_JOBPID", "200"},
                    {"LSF_BINDIR", "/lsf/b"},
                    {"LSF_PM_TASKID", "1"}}),
              ElementsAre(Pair("LSB_JOBID", "7"), Pair("LSB_MCPU_HOSTS", "hA 2 hB 2"),
                          Pair("LSF_BINDIR", "/lsf/b"), Pair("LS_JOBPID", "200")));
}

TEST(JobVariables, OfFluxLeadToTheBrokerOfTheHost) {
  EXPECT_THAT(
      seen({{"FLUX_URI", "local:///run/flux/local-0"}, {"FLUX_ENCLOSING_ID", "f5"}},
           {{"FLUX_URI", "local:///run/flux/local-1"}, {"FLUX_EXTRA", "1"}}),
      ElementsAre(Pair("FLUX_ENCLOSING_ID", "f5"), Pair("FLUX_URI", "local:///run/flux/local-1")));
}

TEST(JobVariables, OfGridEngineAreTheJobsButForThoseOfAHost) {
  const Environment job{{"SGE_TASK_ID", "undefined"},
                        {"JOB_ID", "7"},
                        {"NHOSTS", "2"},
                        {"PE_HOSTFILE", "/spool/hA/pe_hostfile"},
                        {"QUEUE", "all.q"},
                        {"SGE_JOB_SPOOL_DIR", "/spool/hA"},
                        {"JOB_NAME", "train"}};
  const Environment task{{"SGE_TASK_ID", "undefined"},
                         {"JOB_ID", "7"},
                         {"NHOSTS", "2"},
                         {"QUEUE", "fast.q"},
                         {"SGE_JOB_SPOOL_DIR", "/spool/hB/1.hB"},
                         {"JOB_NAME", "petask"},
                         {"ENVIRONMENT", "BATCH"},
                         {"QRSH_PORT", "hA:36163"}};
  EXPECT_THAT(seen(job, task),
              UnorderedElementsAre(
                  Pair("SGE_TASK_ID", "undefined"), Pair("JOB_ID", "7"), Pair("NHOSTS", "2"),
                  Pair("PE_HOSTFILE", "/spool/hA/pe_hostfile"), Pair("QUEUE", "fast.q"),
                  Pair("SGE_JOB_SPOOL_DIR", "/spool/hB/1.hB"), Pair("JOB_NAME", "train")));
}

TEST(JobVariables, OutsideOfJobsAreVariablesLikeOthers) {
  EXPECT_THAT(seen({{"JOB_ID", "mine"}, {"SLURM_CONF", "/a"}, {"PBS_DEFAULT", "s"}},
                   {{"QUEUE", "q"}, {"JOB_ID", "other"}}),
              UnorderedElementsAre(Pair("JOB_ID", "mine"), Pair("SLURM_CONF", "/a"),
                                   Pair("PBS_DEFAULT", "s"), Pair("QUEUE", "q")));
}

TEST(JobVariables, SrunInheritsNoOptions) {
  const Environment job{{"PATH", "/bin"},
                        {"SLURM_CONF", "/etc/slurm.conf"},
                        {"SLURM_CPU_BIND", "map_cpu:3"},
                        {"SLURM_MEM_PER_CPU", "100"},
                        {"SLURM_TRES_PER_TASK", "gres/gpu:1"},
                        {"SRUN_CPUS_PER_TASK", "4"}};
  EXPECT_THAT(environment_for("srun", job),
              ElementsAre(Pair("PATH", "/bin"), Pair("SLURM_CONF", "/etc/slurm.conf")));
  EXPECT_EQ(environment_for("ssh", job), job);
}

TEST(JobVariables, CommandsOfOtherAllocatorsWriteNoDebugOutput) {
  EXPECT_THAT(environment_for("qrsh", {{"JOB_ID", "7"},
                                       {"QRSH_COMMAND", "false"},
                                       {"SGE_DEBUG_LEVEL", "2 0 0 0 0 0 0 0"}}),
              ElementsAre(Pair("JOB_ID", "7")));
  EXPECT_THAT(environment_for("blaunch", {{"LSB_JOBID", "7"}, {"LSF_NIOS_DEBUG", "1"}}),
              ElementsAre(Pair("LSB_JOBID", "7")));
}

}  // namespace
}  // namespace regroup::spec
