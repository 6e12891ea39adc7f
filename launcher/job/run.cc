// Reads what there is, resolves the job with it, and launches the result.
#include "launcher/job/run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <optional>
#include <utility>
#include <variant>

#include "base/status.h"
#include "launcher/alloc/allocator.h"
#include "launcher/job/inventory.h"
#include "launcher/job/job_files.h"
#include "launcher/job/launch_elastic.h"
#include "launcher/job/launch_fixed.h"
#include "launcher/job/pods.h"
#include "launcher/job/resolve.h"
#include "launcher/job/restarts.h"
#include "launcher/job/start.h"
#include "launcher/placement/this_machine.h"

namespace regroup::job {
namespace {

// Leaves the file, as Open MPI 4 does.
base::Status report_pid(const std::string& to) {
  if (to.empty()) return {};
  if (to == "-" || to == "+") {
    std::FILE* stream = to == "-" ? stdout : stderr;
    fmt::print(stream, "{}\n", ::getpid());
    std::fflush(stream);  // what is left in the buffer is written again by each fork
    return {};
  }
  std::ofstream file(to);
  file << ::getpid() << '\n' << std::flush;
  return file ? base::Status() : base::system_error("write", to, errno);
}

// What the user hears of a launch before it: the pid, which does not change, and where the files of
// its job are, if not in the usual place.
base::Status tell_before(const spec::JobSpec& spec, const JobLaunch& launch) {
  if (launch.first()) {
    const base::Status reported = report_pid(spec.report_pid);
    if (!reported.ok())
      return base::Status(reported.code(), fmt::format("--report-pid: {}", reported.message()));
  }
  std::string note;
  if (runtime_folder(spec.environment, &note).ok() && !note.empty() && !spec.quiet) fail(note, 0);
  return {};
}

// The same for all kinds of jobs up to here: what there is, and what of it the job gets. On several
// hosts that is known later, so a job of fixed size is resolved by launch_fixed(), and an elastic
// one gets each host when it comes.
LaunchEnd launch_job(const spec::JobSpec& spec, const JobLaunch& launch) {
  const auto refuse = [&](const std::string& why) {
    return LaunchEnd{fail(why, refused(spec.compat))};
  };
  const auto here = alloc::make_this_machine()->allocation();
  if (!here.ok()) return refuse(here.status().message());
  const bool several = spec.several_hosts();
  const bool described = several && !spec.elastic && placement::is_described(spec);
  if (several && !spec.elastic && !described) {
    if (!spec.do_not_launch) {
      if (const base::Status told = tell_before(spec, launch); !told.ok())
        return refuse(told.message());
    }
    return {launch_fixed(spec, *here, std::nullopt)};
  }
  const auto inventory = described ? described_inventories(spec, *here)
                         : several ? base::Result<Inventory>(without_hosts(spec))
                                   : read_inventory(spec, *here);
  if (!inventory.ok()) return refuse(inventory.status().message());
  auto resolved = resolve(spec, *inventory);
  const auto* refusal = std::get_if<Refusal>(&resolved);
  const std::string& notes = refusal ? refusal->notes : std::get<ResolvedJob>(resolved).notes;
  if (!notes.empty()) fail(notes, 0);
  if (refusal) return {fail(refusal->message, refusal->exit_status)};
  ResolvedJob& job = std::get<ResolvedJob>(resolved);
  if (!several || described) {
    show_placement(spec, inventory->allocation, job);
    if (spec.do_not_launch) return {0};
  }
  if (const base::Status told = tell_before(spec, launch); !told.ok())
    return refuse(told.message());
  if (spec.elastic) return launch_elastic(spec, std::move(job), launch);
  return {launch_fixed(spec, *here, std::move(job))};
}

}  // namespace

int run_job(const spec::JobSpec& spec) {
  if (!spec.grant.launched_by.empty() && !spec.do_not_launch)
    return serve_launcher(spec.grant, spec.environment, spec.quiet);
  if (const auto ended = wait_for_pods(spec)) return *ended;
  Restarts restarts(spec);
  for (;;) {
    const auto over = restarts.over(launch_job(spec, restarts.launch()));
    if (over) return *over;
  }
}

}  // namespace regroup::job
