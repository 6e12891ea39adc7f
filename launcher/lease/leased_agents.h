// The side of `regroup join`: starts agents of another job on the hosts that it leases to that job. Only this
// process can, since the allocator's start command works within its own allocation. The other job's side is
// leased_host_spawner.h.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "launcher/agent/spawner.h"
#include "launcher/spec/hosts.h"
#include "launcher/spec/request.h"
#include "launcher/transport/job_secret.h"

namespace regroup::cmd {

// Used by the loop's thread. The destructor ends the start commands, and so the standard input of the agents,
// which end then.
class LeasedAgents {
 public:
  // Only on hosts of `grant`. `send` takes lines for the controller.
  LeasedAgents(boost::asio::io_context& loop, launcher::Grant grant, launcher::Environment environment,
               std::function<void(const std::string& line)> send);
  // Handles a line of the other job. The job's secret may follow it on `socket` and is read here, which
  // blocks for kSecretLimit at most. False: the line is not about agents. An error: the position in the
  // stream of `socket` is lost.
  [[nodiscard]] base::Result<bool> on_line(std::string_view line, int socket);

 private:
  void start(launcher::AgentOrder order);
  [[nodiscard]] base::Result<launcher::Spawner*> way(bool here);

  boost::asio::io_context& loop_;
  const launcher::Grant grant_;
  const launcher::Environment environment_;
  const std::function<void(const std::string&)> send_;
  std::shared_ptr<const launcher::JobSecret> secret_;
  std::unique_ptr<launcher::Spawner> forker_, commander_;  // here, and on other hosts
  std::map<proto::NodeId, launcher::Spawner*> agents_;
};

}  // namespace regroup::cmd
