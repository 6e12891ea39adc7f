// Each pod of an Indexed Job runs the same command: that of the first waits for the others and
// launches the job, the others keep their pods alive for its agents.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/spec/job_spec.h"

namespace regroup::job {

// Waits until the pod of `grant.launched_by` has ended; returns 0 if it ended well, else 1.
// After SIGTERM, SIGINT or SIGHUP passes the signal on to the agents in this pod, waits for their
// end and returns 128 + signal: Kubernetes tells the first process of a pod alone that it ends.
// Reaps orphans. For a process of one thread, with all signals blocked.
[[nodiscard]] int serve_launcher(const spec::Grant& grant, const spec::Environment& environment,
                                 bool quiet);

// Waits until a pod runs for each host of the job; those of an elastic job at most for
// `spec.min_members_timeout`. Nothing: launch the job. Else a signal came, and this is the exit
// status. Returns at once where the hosts are no pods.
[[nodiscard]] std::optional<int> wait_for_pods(const spec::JobSpec& spec);

// The same for all hosts of `grant`, without a limit: `regroup join` offers them.
[[nodiscard]] std::optional<int> wait_for_pods(const spec::Grant& grant,
                                               const spec::Environment& environment);

// Those of `addresses` for which `running`, lines of "pod/ADDRESS-RANDOM", has no pod.
[[nodiscard]] std::vector<std::string> absent_pods(const std::vector<std::string>& addresses,
                                                   std::string_view running);

// The exit status that the phases of the launching pods mean, a line for each pod; one that failed
// may be listed beside its successor. Nothing: it still runs, or is to come.
[[nodiscard]] std::optional<int> status_of_phases(std::string_view phases);

}  // namespace regroup::job
