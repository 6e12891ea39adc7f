// What the agents of an elastic job, and those of a World of ranks, are set up with. The agent in
// this process and those on other hosts get it from the same setup.
#pragma once

#include <cstdint>
#include <vector>

#include "launcher/agent/messages.h"
#include "launcher/job/checkpoint_start.h"
#include "launcher/job/elastic_agent.h"
#include "launcher/job/option_rules.h"
#include "launcher/placement/members.h"

namespace regroup::job {

// The setup that all agents of the job share. `arena_slots`: member slots of an arena. Ranks of a
// fixed-size job have no learners.
[[nodiscard]] agent::ElasticSetup elastic_setup(const spec::JobSpec& spec,
                                                std::uint32_t arena_slots, const WorldStart& world);

// What the agent does on any host: all that `setup` says. The caller adds what belongs to this host
// and to this process (node, socket, host, slots, transfer_service ...).
[[nodiscard]] ElasticAgentOptions elastic_agent_options(const agent::ElasticSetup& setup);

// The resources of each placed member; empty: members are neither bound nor given devices.
[[nodiscard]] std::vector<agent::SlotResources> slot_resources(const placement::PlacedJob& placed);

}  // namespace regroup::job
