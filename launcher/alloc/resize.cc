// Slurm: scontrol(1), "update", NodeList; sbatch(1), scancel(1), squeue(1), 22.05 to 25.11. LSF:
// IBM Spectrum LSF 10.1.0 command reference, "bresize"; configuration reference, "Environment
// variables for resize notification command".
#include "launcher/alloc/resize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/text.h"

namespace regroup::alloc {
namespace {

// Removed from the environment: Slurm's commands would read the job's own size from these variables
// as the requested one, and scontrol would write scripts for the job's shell.
constexpr const char* kOfTheJob = "SLURM_";
constexpr const char* kJoiner = "regroup-join";  // the name of further jobs

// The option `name` with the job's own value, unless the user has set a default for all jobs.
void add_own(const AllocInput& input, const char* own, const char* said, const char* option,
             std::vector<std::string>& words) {
  if (input.has(own) && !input.has(said))
    words.push_back(fmt::format("{}={}", option, input.value(own)));
}

}  // namespace

// Slurm cannot enlarge a job (its manual no longer documents that), so this submits a further job,
// which joins. If that job does not see the socket, it connects through a step of this job.
AllocatorRequest slurm_grow(const AllocInput& input, const Growth& growth) {
  AllocatorRequest request{{"sbatch", "--parsable", fmt::format("--job-name={}", kJoiner),
                            fmt::format("--ntasks={}", growth.slots),
                            fmt::format("--exclude={}", fmt::join(growth.has, ","))},
                           kOfTheJob};
  add_own(input, "SLURM_JOB_PARTITION", "SBATCH_PARTITION", "--partition", request.words);
  add_own(input, "SLURM_JOB_ACCOUNT", "SBATCH_ACCOUNT", "--account", request.words);
  add_own(input, "SLURM_CPUS_PER_TASK", "SBATCH_CPUS_PER_TASK", "--cpus-per-task", request.words);
  request.words.push_back(
      fmt::format("--wrap=exec {0} join {1} --through srun --jobid={2} --overlap --no-kill -K0 "
                  "--mpi=none --nodes=1 "
                  "--ntasks=1 --ntasks-per-node=1 --nodelist={3} {0} join --relay {1}",
                  growth.program, growth.socket, input.value("SLURM_JOB_ID"), growth.head));
  return request;
}

// Cancels pending requests only. A further job that runs already will join and be refused by the
// controller.
AllocatorRequest slurm_cancel(const AllocInput&, const std::string& request) {
  return {{"scancel", "--state=PENDING", request}, kOfTheJob};
}

AllocatorRequest slurm_requests(const AllocInput&) {
  return {{"squeue", "--noheader", fmt::format("--name={}", kJoiner),
           "--states=PENDING,CONFIGURING,RUNNING,SUSPENDED", "--format=%i"},
          kOfTheJob};
}

AllocatorRequest slurm_give_back(const AllocInput& input, const Host&,
                                 const std::vector<Host>& rest) {
  std::vector<std::string_view> names;
  for (const Host& host : rest) names.emplace_back(host.name);
  return {{"scontrol", "update", "JobId=" + input.value("SLURM_JOB_ID"),
           fmt::format("NodeList={}", fmt::join(names, ","))},
          kOfTheJob};
}

// -c cancels an earlier request: a job has one request at a time, and `bsub -ar -n MIN,MAX` leaves
// one pending. So the request is for all missing slots.
AllocatorRequest lsf_grow(const AllocInput& input, const Growth& growth) {
  return {{"bresize", "request", "-c", "-rnc", growth.script, fmt::format("1,{}", growth.slots),
           input.value("LSB_JOBID")},
          "",
          fmt::format("#!/bin/sh\nexec {} join --resized {}\n", growth.program, growth.socket)};
}

AllocatorRequest lsf_cancel(const AllocInput& input, const std::string&) {
  return {{"bresize", "cancel", input.value("LSB_JOBID")}};
}

// -rncn: without the notification command, since the job itself releases the slots.
AllocatorRequest lsf_give_back(const AllocInput& input, const Host& host,
                               const std::vector<Host>&) {
  return {{"bresize", "release", "-rncn", fmt::format("{}*{}", host.slots, host.name),
           input.value("LSB_JOBID")}};
}

base::Result<ResizeEvent> read_resize_event(const AllocInput& input) {
  ResizeEvent event;
  const std::string& what = input.value("LSB_RESIZE_EVENT");
  if (what.empty()) return base::unavailable("LSB_RESIZE_EVENT is not set");
  if (what != "grow" && what != "shrink")
    return base::invalid_argument(
        fmt::format("{}: expected grow or shrink", fact(input, "LSB_RESIZE_EVENT")));
  event.grow = what == "grow";
  HostSum sum("LSB_RESIZE_HOSTS");
  REGROUP_RETURN_IF_ERROR(add_pairs(input, "LSB_RESIZE_HOSTS", sum));
  if (sum.hosts().empty()) return base::invalid_argument("LSB_RESIZE_HOSTS contains no host");
  event.hosts = std::move(sum.hosts());
  for (const auto& [name, status] : {std::pair{"LSB_RESIZE_NOTIFY_OK", &event.taken},
                                     std::pair{"LSB_RESIZE_NOTIFY_FAIL", &event.refused}}) {
    if (input.has(name) && (!base::whole(input.value(name), *status) || *status > 255))
      return base::invalid_argument(fmt::format("{}: expected an exit status", fact(input, name)));
  }
  return event;
}

}  // namespace regroup::alloc
