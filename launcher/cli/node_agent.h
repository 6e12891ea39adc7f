// `regroup --node-agent JOB NODE PARENT ENDPOINTS BUILD`: what the controller of a job, or an
// agent, starts on another host.
#pragma once

#include <string>
#include <vector>

namespace regroup::cli {

inline constexpr const char* kNodeAgent = "--node-agent";

// `args`: what follows the word. The exit status of the process.
[[nodiscard]] int run_node_agent(const std::vector<std::string>& args);

}  // namespace regroup::cli
