// Which allocators are asked, what they answer, and how long it takes.
#include "launcher/alloc/allocators.h"

#include <gmock/gmock.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "tests/launcher/alloc/clusters.h"

namespace regroup::alloc {
namespace {

using testing::HasSubstr;

TEST(Allocators, FindsNoneWithoutVariables) { EXPECT_EQ(understood({}), "none"); }

TEST(Allocators, ChoosesTheInnermost) {
  Recorded both = flux_job();
  for (const auto& [name, value] : slurm_job().environment) both.environment[name] = value;
  EXPECT_TRUE(understood(both).starts_with("flux "));
  EXPECT_TRUE(understood(both, "slurm").starts_with("slurm "));
  EXPECT_EQ(understood(both, "none"), "none");
  EXPECT_EQ(understood(both, "pbs"), "error: --allocator pbs: PBS_JOBID is not set");
  EXPECT_EQ(understood(both, "sun"),
            "error: --allocator sun: unknown; expected none, flux, kubernetes, slurm, lsf, pbs, "
            "gridengine");
}

TEST(Allocators, DescribeTheAllocationAndItsVariables) {
  const Recorded job = slurm_job();
  const auto granted = find_allocation(job.input(), "");
  ASSERT_TRUE(granted.ok());
  const std::string text = allocation_text(job.input(), *granted);
  EXPECT_THAT(text, HasSubstr("Slurm job 7: 3 hosts, 5 slots\n"));
  EXPECT_THAT(text, HasSubstr("  from SLURM_JOB_NODELIST=n[1-3]\n"));
  EXPECT_THAT(text, HasSubstr("  from SLURM_TASKS_PER_NODE=2(x3)\n"));
  EXPECT_THAT(text, HasSubstr("  from SLURM_NTASKS=5\n"));
  EXPECT_THAT(text, HasSubstr("  agents by srun --jobid=7 --overlap --no-kill -K0 --mpi=none "));
  EXPECT_THAT(text, HasSubstr("n1 slots=2 (this host)\n"));
  const auto json = nlohmann::json::parse(allocation_json(*granted));
  EXPECT_EQ(json["allocator"], "slurm");
  EXPECT_EQ(json["hosts"][2]["slots"], 1);
  EXPECT_THAT(allocation_text({}, {}), HasSubstr("not Slurm: SLURM_JOB_ID is not set"));
}

TEST(Allocators, EachStartsAgentsItsOwnWay) {
  const auto way = [](const Recorded& job) {
    const auto granted = find_allocation(job.input(), "");
    return granted.ok() ? granted->reading.reach : Reach{};
  };
  EXPECT_EQ(way(lsf_job()).before, std::vector<std::string>{"blaunch"});
  EXPECT_TRUE(way(pbs_job()).before.empty());  // ssh: pbs_tmrsh has no standard input
  Recorded open_pbs = pbs_job();
  open_pbs.files["/etc/pbs.conf"] = "PBS_SERVER=server\nPBS_EXEC=/opt/pbs\n";
  EXPECT_TRUE(way(open_pbs).before.empty());  // the user's own ssh command, as a tree
  EXPECT_EQ(way(open_pbs).after,
            (std::vector<std::string>{"/opt/pbs/bin/pbs_attach", "-j", "9.server"}));
  // The id of an array job; ssh passes it to a shell.
  open_pbs.environment["PBS_JOBID"] = "9[2].server";
  EXPECT_EQ(way(open_pbs).after.back(), "'9[2].server'");
  open_pbs.files["/etc/pbs.conf"] = "PBS_EXEC=/opt/$(reboot)\n";
  EXPECT_TRUE(way(open_pbs).before.empty());
  EXPECT_EQ(way(grid_engine_job()).before, (std::vector<std::string>{"qrsh", "-inherit"}));
  EXPECT_EQ(way(flux_job()).before.front(), "flux");
  EXPECT_TRUE(way(operator_job()).before.empty());  // ssh
  Recorded openlava = lsf_job();
  openlava.environment = {{"LSB_JOBID", "1"}, {"LSB_HOSTS", "a a b"}};
  EXPECT_TRUE(way(openlava).before.empty());
}

// "10 5 GraceTime of partition low", or the error.
std::string grace_of(const Recorded& job) {
  for (const AllocatorRow& row : allocators()) {
    if (!row.viable(job.input()).ok) continue;
    const auto grace = row.grace(job.input());
    if (!grace.ok()) return "error: " + grace.status().message();
    return fmt::format("{} {} {}", grace->host / std::chrono::seconds(1),
                       grace->head / std::chrono::seconds(1), grace->source);
  }
  return "nobody";
}

TEST(Allocators, ReportTheLengthOfANotice) {
  Recorded slurm = slurm_job();
  EXPECT_EQ(grace_of(slurm), "error: SLURM_JOB_PARTITION is not set");
  slurm.environment["SLURM_JOB_PARTITION"] = "low";
  // Output of Slurm 22.05.8 without unused lines; here both commands print all of it.
  slurm.printed =
      "KeepAliveTime           = SYSTEM_DEFAULT\nKillOnBadExit           = 0\n"
      "KillWait                = 5 sec\nPartitionName=low AllowGroups=ALL GraceTime=10 Hidden=NO\n";
  EXPECT_EQ(grace_of(slurm), "10 5 GraceTime of partition low");
  slurm.printed = "KillWait = 30 sec\nPartitionName=low GraceTime=0 Hidden=NO\n";
  EXPECT_EQ(grace_of(slurm), "30 30 KillWait");
  slurm.printed = "rubbish";
  EXPECT_EQ(grace_of(slurm), "error: scontrol show config: KillWait is missing");

  Recorded engine = grid_engine_job();
  EXPECT_EQ(grace_of(engine), "error: QUEUE is not set");
  engine.environment["QUEUE"] = "all.q";
  engine.printed =
      "qname                 all.q\nnotify                00:01:05\nprocessors            "
      "UNDEFINED\n";
  EXPECT_EQ(grace_of(engine), "65 65 notify of queue all.q");
  engine.printed = "notify  soon\n";
  EXPECT_EQ(grace_of(engine), "error: qconf -sq: notify is not a time");

  EXPECT_EQ(grace_of(flux_job()), "5 5 default of Flux's kill-timeout");
  const std::string usual = "30 30 default of terminationGracePeriodSeconds";
  EXPECT_EQ(grace_of(operator_job()), usual);
  Recorded pod = {{{"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
                   {"JOB_COMPLETION_INDEX", "0"},
                   {"REGROUP_PODS", "2"}},
                  {},
                  "train-0"};
  pod.printed = "120";
  EXPECT_EQ(grace_of(pod), "120 120 terminationGracePeriodSeconds of the pods");
  for (const char* printed : {"", "0", "soon", "99999999999"}) {
    pod.printed = printed;
    EXPECT_EQ(grace_of(pod), usual) << printed;
  }
  EXPECT_EQ(grace_of({}), "nobody");
}

}  // namespace
}  // namespace regroup::alloc
