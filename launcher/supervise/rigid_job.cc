// The rules of Open MPI: the first rank that ends abnormally decides the exit status.
#include "launcher/supervise/rigid_job.h"

#include <fmt/format.h>

#include <numeric>

namespace regroup::launcher {

RigidJob::RigidJob(Agent& agent, const std::vector<std::uint32_t>& counts) : agent_(agent) {
  const std::uint32_t size = std::accumulate(counts.begin(), counts.end(), 0U);
  for (std::uint32_t app = 0; app < counts.size(); ++app) {
    for (std::uint32_t index = 0; index < counts[app]; ++index) {
      const auto rank = static_cast<std::uint32_t>(places_.size());
      places_.push_back({rank, rank, size, app, index});
    }
  }
}

core::Status RigidJob::start() {
  for (const Place& place : places_) {
    if (core::Status status = agent_.crew().start(place); !status.ok()) {
      return {status.code(), fmt::format("rank {} could not be started: {}", place.rank, status.message())};
    }
  }
  agent_.release_port();
  return {};
}

void RigidJob::on_exit(const MemberExit& exit) {
  if (agent_.ending()) return;
  if (!exit.normal()) {
    const bool others = agent_.crew().running() > 0;
    agent_.say(fmt::format("rank {} (pid {}) {}{}", exit.rank, exit.pid, exit.what(),
                           others ? ": ending the other ranks" : ""));
    agent_.terminate(exit.status());
  } else if (agent_.crew().running() == 0) {
    agent_.terminate(0);
  }
}

}  // namespace regroup::launcher
