// Local checkpoint directories of hosts, in addition to one that all hosts see: finds the newest
// checkpoint of all before a job resumes. docs/design/local_checkpoints.md.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <string>

#include "launcher/agent/hosts.h"
#include "launcher/agent/node_agent.h"
#include "launcher/job/checkpoint_start.h"
#include "launcher/job/host_setup.h"
#include "launcher/spec/checkpoint_plan.h"

namespace regroup::job {

// For an agent: reads its host's local directory and copies from it, in processes that are
// abandoned when they are silent for too long.
[[nodiscard]] agent::LocalCheckpointQuery local_checkpoint_query();

// For the controller, before any agent gets its Setup: if a host has a newer checkpoint than
// plan->resume, that host copies it to plan->shared, this host reads it there, and it becomes
// plan->resume. If that fails the next newest is tried. Runs the loop until then, or until `over`,
// which is called ten times a second. `say` gets a sentence for each host that does not answer or
// cannot copy.
void take_newest_of_hosts(boost::asio::io_context& loop, agent::Hosts& hosts,
                          const std::function<bool()>& over,
                          const std::function<void(const std::string&)>& say,
                          spec::CheckpointPlan* plan);

// The same for a launch whose agents are up: `start` then has what the World starts from. Tells the
// user what take_newest_of_hosts() says. Ends early where `coming` is over. kInvalidArgument:
// check_resumed_options().
[[nodiscard]] base::Status start_from_newest_of_hosts(boost::asio::io_context& loop,
                                                      agent::Hosts& hosts,
                                                      const spec::JobSpec& spec, BringUp& coming,
                                                      WorldStart* start);

}  // namespace regroup::job
