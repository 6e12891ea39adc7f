// The exact requests to allocators, and the answers of LSF.
#include "launcher/alloc/resize.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/launcher/alloc/clusters.h"

namespace regroup::alloc {
namespace {

Growth two_more() {
  return {.slots = 2,
          .has = {"n1", "n2"},
          .head = "n1",
          .program = "/opt/bin/regroup",
          .socket = "/run/job/grants",
          .script = "/run/job/resized"};
}

const AllocatorRow& row_of(const char* name) {
  for (const AllocatorRow& row : allocators()) {
    if (std::string_view(row.name) == name) return row;
  }
  return allocators().front();
}

TEST(Resize, SubmitsAFurtherJobToSlurm) {
  Recorded job = slurm_job();
  const AllocatorRequest request = row_of("slurm").grow(job.input(), two_more());
  EXPECT_EQ(
      request.words,
      (std::vector<std::string>{
          "sbatch", "--parsable", "--job-name=regroup-join", "--ntasks=2", "--exclude=n1,n2",
          ("--wrap=exec /opt/bin/regroup join /run/job/grants --through srun --jobid=7 --overlap "
           "--no-kill -K0 --mpi=none --nodes=1 --ntasks=1 --ntasks-per-node=1 --nodelist=n1 "
           "/opt/bin/regroup join --relay /run/job/grants")}));
  EXPECT_EQ(request.without, "SLURM_");
}

TEST(Resize, AFurtherSlurmJobHasTheOptionsOfTheFirst) {
  Recorded job = slurm_job();
  job.environment["SLURM_JOB_PARTITION"] = "low";
  job.environment["SLURM_JOB_ACCOUNT"] = "physics";
  job.environment["SLURM_CPUS_PER_TASK"] = "4";
  std::vector<std::string> words = row_of("slurm").grow(job.input(), two_more()).words;
  words.pop_back();
  EXPECT_EQ(words, (std::vector<std::string>{"sbatch", "--parsable", "--job-name=regroup-join",
                                             "--ntasks=2", "--exclude=n1,n2", "--partition=low",
                                             "--account=physics", "--cpus-per-task=4"}));
  job.environment["SBATCH_PARTITION"] = "preemptible";
  words = row_of("slurm").grow(job.input(), two_more()).words;
  EXPECT_EQ(std::ranges::count(words, "--partition=low"), 0);
}

TEST(Resize, ReturnsAHostToSlurmByNamingTheRest) {
  const AllocatorRequest request =
      row_of("slurm").give_back(slurm_job().input(), {"n2", 2, {}}, {{"n1", 2, {}}, {"n3", 1, {}}});
  EXPECT_EQ(request.words,
            (std::vector<std::string>{"scontrol", "update", "JobId=7", "NodeList=n1,n3"}));
  EXPECT_EQ(request.without, "SLURM_");  // or it writes a script for the shell
}

TEST(Resize, ResizesLsfByBresize) {
  const AllocInput input = lsf_job().input();
  const AllocatorRequest more = row_of("lsf").grow(input, two_more());
  EXPECT_EQ(more.words, (std::vector<std::string>{"bresize", "request", "-c", "-rnc",
                                                  "/run/job/resized", "1,2", "1234"}));
  EXPECT_EQ(more.script, "#!/bin/sh\nexec /opt/bin/regroup join --resized /run/job/grants\n");
  EXPECT_EQ(row_of("lsf").give_back(input, {"hB", 4, {}}, {}).words,
            (std::vector<std::string>{"bresize", "release", "-rncn", "4*hB", "1234"}));
  EXPECT_TRUE(row_of("lsf").parts);     // "num_tasks*host_name"
  EXPECT_FALSE(row_of("slurm").parts);  // NodeList has whole nodes
}

TEST(Resize, ListsAndCancelsPendingRequests) {
  const AllocInput slurm = slurm_job().input();
  EXPECT_EQ(row_of("slurm").cancel(slurm, "18").words,
            (std::vector<std::string>{"scancel", "--state=PENDING", "18"}));
  EXPECT_EQ(
      row_of("slurm").requests(slurm).words,
      (std::vector<std::string>{"squeue", "--noheader", "--name=regroup-join",
                                "--states=PENDING,CONFIGURING,RUNNING,SUSPENDED", "--format=%i"}));
  EXPECT_EQ(row_of("lsf").cancel(lsf_job().input(), "").words,
            (std::vector<std::string>{"bresize", "cancel", "1234"}));
  EXPECT_EQ(row_of("lsf").requests,
            nullptr);  // a further request takes the place of the one before
}

TEST(Resize, OtherAllocatorsCannotResize) {
  for (const char* name : {"flux", "kubernetes", "pbs", "gridengine"}) {
    EXPECT_EQ(row_of(name).grow, nullptr) << name;
    EXPECT_EQ(row_of(name).give_back, nullptr) << name;
  }
}

// "grow hC:2 hD:1 0 1", or the error.
std::string event_of(const spec::Environment& environment) {
  const auto event = read_resize_event(Recorded{environment}.input());
  if (!event.ok()) return "error: " + event.status().message();
  std::string out = event->grow ? "grow" : "shrink";
  for (const Host& host : event->hosts) out += fmt::format(" {}:{}", host.name, host.slots);
  return out + fmt::format(" {} {}", event->taken, event->refused);
}

TEST(Resize, ParsesTheAnswersOfLsf) {
  EXPECT_EQ(event_of({{"LSB_RESIZE_EVENT", "grow"}, {"LSB_RESIZE_HOSTS", "hC 2 hD 1"}}),
            "grow hC:2 hD:1 0 1");
  EXPECT_EQ(event_of({{"LSB_RESIZE_EVENT", "shrink"},
                      {"LSB_RESIZE_HOSTS", "hC 2"},
                      {"LSB_RESIZE_NOTIFY_OK", "3"},
                      {"LSB_RESIZE_NOTIFY_FAIL", "4"}}),
            "shrink hC:2 3 4");
  EXPECT_EQ(event_of({}), "error: LSB_RESIZE_EVENT is not set");
  EXPECT_EQ(event_of({{"LSB_RESIZE_EVENT", "move"}, {"LSB_RESIZE_HOSTS", "hC 2"}}),
            "error: LSB_RESIZE_EVENT=move: expected grow or shrink");
  EXPECT_EQ(event_of({{"LSB_RESIZE_EVENT", "grow"}}), "error: LSB_RESIZE_HOSTS contains no host");
  EXPECT_EQ(event_of({{"LSB_RESIZE_EVENT", "grow"}, {"LSB_RESIZE_HOSTS", "hC"}}),
            "error: LSB_RESIZE_HOSTS: host hC: expected a number of slots after the name");
  EXPECT_EQ(event_of({{"LSB_RESIZE_EVENT", "grow"},
                      {"LSB_RESIZE_HOSTS", "hC 2"},
                      {"LSB_RESIZE_NOTIFY_OK", "x"}}),
            "error: LSB_RESIZE_NOTIFY_OK=x: expected an exit status");
}

}  // namespace
}  // namespace regroup::alloc
