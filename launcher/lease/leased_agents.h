// In `regroup join`: starts agents of another job on the hosts that it leases to that job. Only
// this process can, since the allocator's start command works only within its own allocation. The
// other job's side is leased_host_spawner.h.
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

namespace regroup::lease {

// Used by the loop's thread. The destructor ends the start commands, and so the standard input of
// the agents, which end then.
class LeasedAgents {
 public:
  // Starts agents only on hosts of `grant`. `send` sends a line to the controller.
  LeasedAgents(boost::asio::io_context& loop, spec::Grant grant, spec::Environment environment,
               std::function<void(const std::string& line)> send);
  // Handles a line of the other job. Also reads the job's secret if that follows on `socket`, which
  // blocks for at most kSecretLimit. False: the line is not about agents. After an error the stream
  // of `socket` cannot be parsed any more.
  [[nodiscard]] base::Result<bool> on_line(std::string_view line, int socket);

 private:
  void start(agent::AgentOrder order);
  [[nodiscard]] base::Result<agent::Spawner*> way(bool here);

  boost::asio::io_context& loop_;
  const spec::Grant grant_;
  const spec::Environment environment_;
  const std::function<void(const std::string&)> send_;
  std::shared_ptr<const transport::JobSecret> secret_;
  // For this host, and for other hosts.
  std::unique_ptr<agent::Spawner> forker_;
  std::unique_ptr<agent::Spawner> commander_;
  std::map<proto::NodeId, agent::Spawner*> agents_;
};

}  // namespace regroup::lease
