// Delays between starts of an agent, and reasons why it does not start.
#include "launcher/job/agent_restarts.h"

#include <algorithm>
#include <utility>

namespace regroup::job {

AgentStage AgentRestarts::lose(std::size_t host) {
  Agent& agent = agents_[host];
  if (agent.stage == AgentStage::kInJob) agent.said.emplace();
  return std::exchange(agent.stage, AgentStage::kUnknown);
}

base::Duration AgentRestarts::delay(std::size_t host, base::TimePoint now) {
  Agent& agent = agents_[host];
  const auto came = std::exchange(agent.came, std::nullopt);
  if (came && now - *came > kStable) agent.delay = {};
  agent.delay = std::clamp(2 * agent.delay, kFirstDelay, kLongestDelay);
  return agent.delay;
}

bool AgentRestarts::is_news(std::size_t host, const std::string& why) {
  Agent& agent = agents_[host];
  return agent.said && agent.said->insert(why).second;
}

}  // namespace regroup::job
