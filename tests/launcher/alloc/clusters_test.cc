// One table for each allocator: what the environment of a job holds, and what is understood of it.
#include "tests/launcher/alloc/clusters.h"

#include <gtest/gtest.h>

namespace regroup::alloc {
namespace {

struct Row {
  spec::Environment change;  // "-": taken out
  const char* expected;
};

template <std::size_t N>
void check(const Recorded& recorded, const Row (&rows)[N]) {
  for (const Row& row : rows) {
    Recorded changed = recorded;
    for (const auto& [name, value] : row.change) {
      changed.environment[name] = value;
      if (value == "-") changed.environment.erase(name);
    }
    EXPECT_EQ(understood(changed), row.expected);
  }
}

TEST(Slurm, ReadsHostsAndSlots) {
  constexpr const char* kNoCounts =
      "error: Slurm: SLURM_JOB_NODELIST=n[1-3], but neither SLURM_TASKS_PER_NODE nor "
      "SLURM_JOB_CPUS_PER_NODE "
      "gives the number of members per host (--allocator none uses only this machine)";
  const Row rows[] = {
      {{}, "slurm n1:2* n2:2 n3:1"},
      {{{"SLURM_NTASKS", "-"}}, "slurm n1:2* n2:2 n3:2"},
      {{{"SLURM_NTASKS", "1"}}, "slurm n1:1* n2:0 n3:0"},
      {{{"SLURM_TASKS_PER_NODE", "2(x2),1"}}, "slurm n1:2* n2:2 n3:1"},
      {{{"SLURM_TASKS_PER_NODE", "1,8,1"}, {"SLURM_NTASKS", "10"}}, "slurm n1:1* n2:8 n3:1"},
      {{{"SLURM_NTASKS", "8"}},
       "slurm n1:2* n2:2 n3:2\nnote: SLURM_NTASKS=8, but SLURM_TASKS_PER_NODE has room for 6: "
       "using "
       "SLURM_TASKS_PER_NODE"},
      {{{"SLURM_JOB_NUM_NODES", "4"}},
       "slurm n1:2* n2:2 n3:1\nnote: SLURM_JOB_NUM_NODES=4, but SLURM_JOB_NODELIST gives 3: using "
       "SLURM_JOB_NODELIST"},
      {{{"SLURM_TASKS_PER_NODE", "-"}, {"SLURM_NTASKS", "-"}}, "slurm n1:8* n2:8 n3:8"},
      {{{"SLURM_TASKS_PER_NODE", "-"}, {"SLURM_NTASKS", "-"}, {"SLURM_CPUS_PER_TASK", "3"}},
       "slurm n1:2* n2:2 n3:2"},
      {{{"SLURM_TASKS_PER_NODE", "-"}, {"SLURM_JOB_CPUS_PER_NODE", "-"}}, kNoCounts},
      {{{"SLURMD_NODENAME", "-"}}, "slurm n1:2* n2:2 n3:1"},
      {{{"SLURMD_NODENAME", "login"}}, "slurm n1:2 n2:2 n3:1"},
      {{{"SLURM_PROCID", "0"},
        {"SLURM_STEP_NODELIST", "n2"},
        {"SLURM_STEP_TASKS_PER_NODE", "2"},
        {"SLURM_STEP_NUM_TASKS", "2"}},
       "slurm n2:2"},
      {{{"SLURM_PROCID", "1"},
        {"SLURM_STEP_NODELIST", "n2"},
        {"SLURM_STEP_TASKS_PER_NODE", "2"},
        {"SLURM_STEP_NUM_TASKS", "2"}},
       "slurm n2:2\nnote: srun started 2 launchers, and this is number 2: each starts a job of its "
       "own; "
       "start "
       "one, without srun or by srun --ntasks=1"},
      {{{"SLURM_JOB_NODELIST", "-"}}, "none"},
  };
  check(slurm_job(), rows);
}

TEST(Slurm, ExplainsWhyAnInheritedJobIsNotUsed) {
  Recorded inherited;
  inherited.environment = {{"SLURM_JOB_ID", "7"}};
  EXPECT_EQ(understood(inherited, "slurm"),
            "error: --allocator slurm: SLURM_JOB_ID is set, but no variable contains hosts "
            "(SLURM_JOB_NODELIST, SLURM_NODELIST, SLURM_STEP_NODELIST)");
}

TEST(Slurm, RefusesInvalidVariables) {
  const auto refused = [](const char* name, const char* value) {
    Recorded changed = slurm_job();
    changed.environment[name] = value;
    const std::string text = understood(changed);
    const std::string end = " (--allocator none uses only this machine)";
    EXPECT_TRUE(text.ends_with(end)) << text;
    return text.substr(0, text.size() - std::min(end.size(), text.size()));
  };
  const auto nodes = [&](const char* value) { return refused("SLURM_JOB_NODELIST", value); };
  const auto tasks = [&](const char* value) { return refused("SLURM_TASKS_PER_NODE", value); };
  EXPECT_EQ(nodes("n[3-1]"),
            "error: Slurm: SLURM_JOB_NODELIST: '3-1': expected an ascending range");
  EXPECT_EQ(nodes("n1,n2,n1"), "error: Slurm: SLURM_JOB_NODELIST: host n1 is listed twice");
  EXPECT_EQ(nodes("n[0-999999999]"),
            "error: Slurm: SLURM_JOB_NODELIST: 'n[0-999999999]': more than 200000 names");
  EXPECT_EQ(nodes("-oProxyCommand=x,n2,n3"),
            "error: Slurm: SLURM_JOB_NODELIST: '-oProxyCommand=x' is not a host name");
  EXPECT_EQ(tasks("2(x3"),
            "error: Slurm: SLURM_TASKS_PER_NODE=2(x3: '2(x3': expected N or N(xTIMES)");
  EXPECT_EQ(tasks("2(x4)"),
            "error: Slurm: SLURM_TASKS_PER_NODE=2(x4): '2(x4)': counts more hosts than the 3 of "
            "the host list");
  EXPECT_EQ(tasks("2"), "error: Slurm: SLURM_TASKS_PER_NODE=2: '': got 1 counts for 3 hosts");
  EXPECT_EQ(tasks("99999999(x3)"),
            "error: Slurm: SLURM_JOB_NODELIST: host n1 has more than 1048576 slots");
}

TEST(Slurm, ReadsTheNumbersOfItsGpus) {
  Recorded job = slurm_job();
  job.environment["SLURM_JOB_GPUS"] = "2,4-5";
  job.environment["SLURM_GPUS_PER_NODE"] = "v100:3";
  const auto granted = find_allocation(job.input(), "");
  ASSERT_TRUE(granted.ok());
  const std::vector<Host>& hosts = granted->reading.allocation.hosts;
  EXPECT_EQ(hosts[0].gpus, (std::vector<std::string>{"2", "4", "5"}));
  EXPECT_TRUE(hosts[1].gpus.empty());
  EXPECT_EQ(hosts[1].gpu_count, 3U);
}

TEST(Lsf, ReadsHostsAndSlots) {
  const Row rows[] = {
      {{}, "lsf hA:2* hB:4"},
      {{{"LSB_MCPU_HOSTS", "-"}}, "lsf hA:2* hB:4"},
      {{{"LSB_MCPU_HOSTS", "-"}, {"LSB_DJOB_HOSTFILE", "-"}, {"LSB_HOSTS", "hA hB hA hB hB hB"}},
       "lsf hA:2* hB:4"},
      {{{"LSB_DJOB_NUMPROC", "7"}},
       "lsf hA:2* hB:4\nnote: LSB_DJOB_NUMPROC=7, but LSB_MCPU_HOSTS gives 6: using "
       "LSB_MCPU_HOSTS"},
      {{{"LSB_MCPU_HOSTS", "batch1 1 hA 2 hB 4"},
        {"LSB_DJOB_NUMPROC", "-"},
        {"CSM_ALLOCATION_ID", "3"}},
       "lsf hA:2* hB:4"},
      {{{"LSB_MCPU_HOSTS", "hA 2 hB"}},
       "error: LSF: LSB_MCPU_HOSTS: host hB: expected a number of slots after the name "
       "(--allocator none "
       "uses only this machine)"},
      {{{"LSB_MCPU_HOSTS", "hA 2 hB x"}},
       "error: LSF: LSB_MCPU_HOSTS: host hB: expected a number of slots after the name "
       "(--allocator none "
       "uses only this machine)"},
      {{{"LSB_AFFINITY_HOSTFILE", "/gone"}},
       "lsf hA:2* hB:4\nnote: LSB_AFFINITY_HOSTFILE: open(/gone): No such file: the file is not "
       "used to bind "
       "members"},
  };
  check(lsf_job(), rows);
}

TEST(Lsf, ReadsTheProcessorsOfEachRank) {
  Recorded job = lsf_job();
  job.environment["LSB_AFFINITY_HOSTFILE"] = "/aff";
  job.files["/aff"] = "hA 0,1 0 2\nhA 2-3\n\nhB 5\n";
  const auto granted = find_allocation(job.input(), "lsf");
  ASSERT_TRUE(granted.ok()) << granted.status().message();
  EXPECT_EQ(granted->reading.allocation.hosts[0].cores, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(granted->reading.allocation.hosts[1].cores, std::vector<int>{5});
  job.files["/aff"] = "";  // no affinity was asked for
  EXPECT_EQ(understood(job), "lsf hA:2* hB:4");
  job.files["/aff"] = "hA 0\nhC 1\n";
  EXPECT_EQ(
      understood(job),
      "error: LSF: LSB_AFFINITY_HOSTFILE=/aff, line 2: host hC is not in the job's allocation "
      "(--allocator none uses only this machine)");
}

TEST(Pbs, ReadsHostsAndSlots) {
  const Row rows[] = {
      {{}, "pbs vmA:2* vmB:1"},
      {{{"PBS_NP", "3"}}, "pbs vmA:2* vmB:1"},
      {{{"PBS_NP", "4"}},
       "pbs vmA:2* vmB:1\nnote: PBS_NP=4, but PBS_NODEFILE gives 3: using PBS_NODEFILE"},
      {{{"PBS_NODEFILE", "-"}}, "none"},  // a shell that inherits a job's number
      {{{"PBS_NODEFILE", "/elsewhere"}},
       "error: PBS: PBS_NODEFILE: open(/elsewhere): No such file; the file exists only on the "
       "job's first "
       "host, where its script runs (--allocator none uses only this machine)"},
  };
  check(pbs_job(), rows);
  Recorded smp = pbs_job();
  smp.files["/pbs/nodes"] = "vmA\nvmB\n";
  smp.environment["PBS_PPN"] = "16";
  EXPECT_EQ(understood(smp), "pbs vmA:16* vmB:16");
  Recorded gpus = pbs_job();
  gpus.environment["PBS_GPUFILE"] = "/gpus";
  gpus.files["/gpus"] = "vmA-gpu1\nvmB-gpu0\n";
  EXPECT_EQ(find_allocation(gpus.input(), "")->reading.allocation.hosts[0].gpus,
            std::vector<std::string>{"1"});
  gpus.files["/gpus"] = "vmA-gpu1\nvmC-gpu0\n";
  EXPECT_EQ(understood(gpus),
            "error: PBS: PBS_GPUFILE=/gpus, line 2: 'vmC-gpu0': expected HOST-gpuN with a host of "
            "the job "
            "(--allocator none uses only this machine)");
}

TEST(GridEngine, ReadsHostsAndSlots) {
  Recorded job = grid_engine_job();
  EXPECT_EQ(understood(job), "gridengine vm:3*");
  job.files["/sge/pe"] = "vm 1 all.q@vm <NULL>\nb 4 all.q@b 0,0:0,1\nvm 2 gpu.q@vm UNDEFINED\n";
  EXPECT_EQ(
      understood(job),
      "gridengine vm:3* b:4\nnote: NSLOTS=3, but PE_HOSTFILE gives 7: using PE_HOSTFILE\nnote: "
      "NHOSTS=1, but PE_HOSTFILE gives 2: using PE_HOSTFILE");
  job.files["/sge/pe"] = "vm 1 q\nb none q\n";
  EXPECT_EQ(understood(job),
            "error: Grid Engine: PE_HOSTFILE=/sge/pe, line 2: host b: expected a number of slots "
            "after the "
            "name (--allocator none uses only this machine)");
  job.environment.erase("PE_HOSTFILE");
  EXPECT_EQ(understood(job), "none");  // JOB_ID alone may be anybody's
}

TEST(Flux, ReadsHostsAndSlots) {
  Recorded job = flux_job();
  EXPECT_EQ(understood(job), "flux fluke82:4* fluke83:4 fluke8:4 fluke9:4");
  const auto granted = find_allocation(job.input(), "");
  EXPECT_EQ(granted->reading.allocation.hosts[1].address, "20");
  EXPECT_EQ(granted->reading.allocation.hosts[1].gpus, (std::vector<std::string>{"0", "1"}));
  const std::pair<const char*, const char*> refused[] = {
      {"rubbish", "not a resource set (RFC 20)"},
      {R"({"version": 2, "execution": {}})", "unknown version of R; expected version 1"},
      {R"({"version": 1, "execution": {"R_lite": [{"rank": "0-1"}], "nodelist": ["a"]}})",
       "R_lite has 2 ranks, but nodelist 1 names"},
      {R"({"version": 1, "execution": {"R_lite": [{"rank": 3}], "nodelist": ["a"]}})",
       "rank: expected a string"},
      {R"({"version": 1, "execution": {"R_lite": {}, "nodelist": []}})", "R_lite: expected a list"},
  };
  for (const auto& [text, why] : refused) {
    job.printed = text;
    EXPECT_EQ(
        understood(job),
        fmt::format("error: Flux: flux resource R: {} (--allocator none uses only this machine)",
                    why));
  }
}

TEST(Kubernetes, ReadsTheHostFileOfTheMpiOperator) {
  Recorded job = operator_job();
  EXPECT_EQ(understood(job),
            "kubernetes mpi-worker-0.mpi.default.svc:2 mpi-worker-1.mpi.default.svc:2");
  job.files["/etc/mpi/hostfile"] = "mpi-worker-0.mpi.default.svc slots=zwei\n";
  EXPECT_EQ(understood(job),
            "error: Kubernetes: OMPI_MCA_orte_default_hostfile: /etc/mpi/hostfile, line 1: field "
            "'slots=zwei': expected a whole number (--allocator none uses only this machine)");
  Recorded intel = operator_job();
  intel.environment = {{"KUBERNETES_SERVICE_HOST", "10.96.0.1"}, {"I_MPI_HYDRA_HOST_FILE", "/h"}};
  intel.files["/h"] = "mpi-worker-0.mpi.default.svc:3\n";
  EXPECT_EQ(understood(intel), "kubernetes mpi-worker-0.mpi.default.svc:3");
}

TEST(Kubernetes, PodsOfAnIndexedJobKnowEachOther) {
  Recorded job{{{"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
                {"JOB_COMPLETION_INDEX", "1"},
                {"REGROUP_PODS", "3"},
                {"REGROUP_SUBDOMAIN", "train.default.svc"}},
               {},
               "train-1"};
  EXPECT_EQ(understood(job),
            "kubernetes train-0.train.default.svc:1 train-1.train.default.svc:1* "
            "train-2.train.default.svc:1");
  EXPECT_EQ(find_allocation(job.input(), "")->reading.allocation.hosts[2].address, "train-2");
  job.environment["PET_NPROC_PER_NODE"] = "4";
  EXPECT_EQ(understood(job),
            "kubernetes train-0.train.default.svc:4 train-1.train.default.svc:4* "
            "train-2.train.default.svc:4");
  job.environment["JOB_COMPLETION_INDEX"] = "3";
  EXPECT_EQ(understood(job),
            "error: Kubernetes: JOB_COMPLETION_INDEX=3: expected a number below 3 (REGROUP_PODS) "
            "(--allocator none uses only this machine)");
  job.environment.erase("REGROUP_PODS");
  EXPECT_EQ(understood(job), "none");
}

TEST(Kubernetes, TheFirstPodOfAnIndexedJobLaunchesAndTheOthersServe) {
  Recorded job{{{"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
                {"JOB_COMPLETION_INDEX", "0"},
                {"REGROUP_PODS", "3"}},
               {},
               "train-0"};
  Reading first = find_allocation(job.input(), "")->reading;
  EXPECT_EQ(first.launched_by, "");
  EXPECT_EQ(first.print_running.back(), "--selector=batch.kubernetes.io/job-name=train");
  job.environment["JOB_COMPLETION_INDEX"] = "2";
  job.host_name = "train-2";
  const Reading other = find_allocation(job.input(), "")->reading;
  EXPECT_EQ(other.launched_by, "train-0");
  EXPECT_EQ(other.print_phases.back(),
            "--selector=batch.kubernetes.io/job-name=train,"
            "batch.kubernetes.io/job-completion-index=0");
  EXPECT_TRUE(other.print_running.empty());
  job.environment["REGROUP_JOB"] = "12345678";  // a member of a job that runs a job
  EXPECT_EQ(find_allocation(job.input(), "")->reading.launched_by, "");
}

TEST(Kubernetes, TheFirstPodOfAJobSetsFirstJobLaunches) {
  Recorded job{{{"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
                {"JOB_COMPLETION_INDEX", "0"},
                {"REGROUP_PODS", "2"},
                {"REGROUP_JOBS", "2"}},
               {},
               "train-workers-0-0"};
  EXPECT_EQ(find_allocation(job.input(), "")->reading.print_running.back(),
            "--selector=batch.kubernetes.io/job-name in (train-workers-0,train-workers-1)");
  job.host_name = "train-workers-1-0";
  EXPECT_EQ(find_allocation(job.input(), "")->reading.launched_by, "train-workers-0-0");
}

TEST(Kubernetes, GrowsOnlyWithADiscoveryScript) {
  Recorded job{{{"KUBERNETES_SERVICE_HOST", "10.96.0.1"}, {"HYDRA_HOST_FILE", "/etc/mpi/hostfile"}},
               {{"/etc/mpi/hostfile", "w-0:2\n"}},
               "launcher"};
  EXPECT_EQ(find_allocation(job.input(), "")->reading.growth, "");
  EXPECT_NE(allocation_text(job.input(), *find_allocation(job.input(), "")).find("does not grow"),
            std::string::npos);
  job.files["/etc/mpi/discover_hosts.sh"] = "#!/bin/sh\n";
  EXPECT_EQ(find_allocation(job.input(), "")->reading.growth,
            "grows as --host-discovery-script /etc/mpi/discover_hosts.sh says");
}

// JobSet: pods are called <jobset>-<replicated job>-<job>-<pod>, their subdomain is the jobset.
TEST(Kubernetes, PodsOfAJobSetKnowThoseOfAllItsJobs) {
  Recorded job{{{"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
                {"JOB_COMPLETION_INDEX", "0"},
                {"REGROUP_PODS", "2"},
                {"REGROUP_JOBS", "2"},
                {"REGROUP_SUBDOMAIN", "train"}},
               {},
               "train-workers-1-0"};
  EXPECT_EQ(
      understood(job),
      "kubernetes train-workers-0-0.train:1 train-workers-0-1.train:1 train-workers-1-0.train:1* "
      "train-workers-1-1.train:1");
  EXPECT_EQ(find_allocation(job.input(), "")->reading.allocation.hosts[3].address,
            "train-workers-1-1");
  job.environment["REGROUP_JOBS"] = "1";
  EXPECT_EQ(understood(job), "kubernetes train-workers-1-0.train:1* train-workers-1-1.train:1");
  const std::string none = " (--allocator none uses only this machine)";
  job.environment["REGROUP_JOBS"] = "none";
  EXPECT_EQ(understood(job),
            "error: Kubernetes: REGROUP_JOBS=none: expected a whole number >= 1" + none);
  job.environment["REGROUP_JOBS"] = "2";
  job.host_name = "train-workers-2-0";
  EXPECT_EQ(understood(job),
            "error: Kubernetes: REGROUP_JOBS=2: train-workers-2 does not end in the job's number, "
            "below this "
            "one, as in a JobSet" +
                none);
  job.host_name = "train-workers-1-0";
  job.environment["REGROUP_JOBS"] = job.environment["REGROUP_PODS"] = "150000";
  EXPECT_EQ(understood(job),
            "error: Kubernetes: 150000 jobs of 150000 pods: expected at most 200000 pods" + none);
}

TEST(Discovery, ReadsHostsWithOrWithoutSlots) {
  const auto hosts = read_discovered("a:4\n\nb\n c.d:1 \n", "find.sh", 2);
  ASSERT_TRUE(hosts.ok());
  EXPECT_EQ(hosts->size(), 3U);
  EXPECT_EQ((*hosts)[1].slots, 2U);
  EXPECT_TRUE(read_discovered("", "find.sh", 1)->empty());
  EXPECT_TRUE(read_discovered("a:0\n", "find.sh", 1)->empty());  // it takes nobody
  const auto addresses = read_discovered("fe80::1\n[fe80::2]:4\n", "find.sh", 2);
  ASSERT_TRUE(addresses.ok()) << addresses.status().message();
  EXPECT_EQ(addresses->at(0).slots, 2U);
  EXPECT_EQ(addresses->at(1).name, "fe80::2");
  const std::pair<const char*, const char*> refused[] = {
      {"a\nTraceback (most recent call last):\n",
       "find.sh, line 2: 'Traceback (most recent call last):': expected HOST or HOST:SLOTS"},
      {"a:b:0\n", "find.sh: 'a:b' is not a host name"},
      {"-oProxyCommand=x\n", "find.sh: '-oProxyCommand=x' is not a host name"},
      {"a b\n", "find.sh, line 1: 'a b': expected HOST or HOST:SLOTS"},
      {"a\na\n", "find.sh: host a is listed twice"},
  };
  for (const auto& [text, why] : refused)
    EXPECT_EQ(read_discovered(text, "find.sh", 1).status().message(), why);
}

}  // namespace
}  // namespace regroup::alloc
