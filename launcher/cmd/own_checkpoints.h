// Hosts' own directories of checkpoints, in front of one that all hosts see: which of all has the newest,
// before it is decided what a job goes on from. docs/design/local_checkpoints.md.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <string>

#include "launcher/node/checkpoint_plan.h"
#include "launcher/node/hosts.h"
#include "launcher/node/node_agent.h"

namespace regroup::cmd {

// For an agent: looks into its host's own directory and copies out of it, in processes that are given up when
// they are silent for too long.
[[nodiscard]] node::LocalCheckpointQuery local_checkpoint_query();

// For the controller, all of whose agents that are up have no Setup yet: is there a newer one than
// plan->resume, it is copied to plan->shared by its host, read there by this one, and becomes plan->resume;
// the newest that can be. Runs the loop until then, or until `over`, asked ten times a second. Whoever does
// not answer, or cannot copy, is named to `say` and passed over.
void take_newest_of_hosts(boost::asio::io_context& loop, node::Hosts& hosts,
                          const std::function<bool()>& over,
                          const std::function<void(const std::string&)>& say, node::CheckpointPlan* plan);

}  // namespace regroup::cmd
