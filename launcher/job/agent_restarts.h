// When the agents of an elastic job are started again, and which of their failures are reported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/clock.h"

namespace regroup::job {

// What the coordinator knows of the agent of a host.
enum class AgentStage : std::uint8_t {
  kUnknown,  // nothing: it was not started yet, it is lost, or it is not set up yet
  kAwaited,  // nothing either, and its first start, that of the job, has not failed yet
  kInJob,    // it is set up
};

// A lost agent is started again after a delay, which doubles with each failure. Pure.
class AgentRestarts {
 public:
  // The job starts while the agent of this host is still on its way.
  void await(std::size_t host) { agents_[host].stage = AgentStage::kAwaited; }
  void set_up(std::size_t host) { agents_[host].stage = AgentStage::kInJob; }
  // The agent, which was awaited or started again, is up since `now`.
  void came(std::size_t host, base::TimePoint now) { agents_[host].came = now; }
  // The agent is lost, or its start has failed. Returns the stage before.
  [[nodiscard]] AgentStage lose(std::size_t host);
  // How long from `now` until its next start.
  [[nodiscard]] base::Duration delay(std::size_t host, base::TimePoint now);
  // Whether to report that a start of the agent has failed for the reason `why`: once for each
  // reason since the host was in the job. Before that the start of the job reports failures.
  [[nodiscard]] bool is_news(std::size_t host, const std::string& why);

  static constexpr base::Duration kFirstDelay = std::chrono::seconds(1);
  static constexpr base::Duration kLongestDelay = std::chrono::seconds(30);
  // After so long without a failure the next delay is the first one again.
  static constexpr base::Duration kStable = std::chrono::seconds(3);

 private:
  struct Agent {
    AgentStage stage = AgentStage::kUnknown;
    base::Duration delay{};
    std::optional<base::TimePoint> came = {};        // unless it was lost since
    std::optional<std::set<std::string>> said = {};  // reasons, once the host was in the job
  };
  std::map<std::size_t, Agent> agents_;  // by host
};

}  // namespace regroup::job
