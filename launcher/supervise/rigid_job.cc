// The rules of Open MPI: the first rank that ends abnormally decides the exit status.
#include "launcher/supervise/rigid_job.h"

#include <fmt/format.h>

namespace regroup::launcher {

core::Status RigidJob::start() {
  for (std::uint32_t rank = 0; rank < members_; ++rank) {
    if (core::Status status = agent_.crew().start({rank, rank, members_}); !status.ok()) {
      return {status.code(), fmt::format("rank {} could not be started: {}", rank, status.message())};
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
