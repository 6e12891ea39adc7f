// Agents of a job that runs elsewhere, on hosts of this allocation: `regroup join` starts them, by the
// allocator's own command, which works in no other job. The hub's side is joiner_spawner.h.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "core/status.h"
#include "launcher/net/job_secret.h"
#include "launcher/options/hosts.h"
#include "launcher/options/request.h"
#include "launcher/spawn/spawner.h"

namespace regroup::cmd {

// Used by the loop's thread. The destructor ends the processes here, by which agents lose their input.
class LentAgents {
 public:
  // Only on hosts of `grant`. `send` takes lines for the hub.
  LentAgents(boost::asio::io_context& loop, launcher::Grant grant, launcher::Environment environment,
             std::function<void(const std::string& line)> send);
  // A line of the hub's; behind it `socket` may have the job's secret, which is read: blocks until it is
  // there, for seconds. False: this line is not about agents. An error: what is on `socket` cannot be
  // understood any more.
  [[nodiscard]] core::Result<bool> on_line(std::string_view line, int socket);

 private:
  void start(launcher::AgentOrder order);
  [[nodiscard]] core::Result<launcher::Spawner*> way(bool here);

  boost::asio::io_context& loop_;
  const launcher::Grant grant_;
  const launcher::Environment environment_;
  const std::function<void(const std::string&)> send_;
  std::shared_ptr<const launcher::JobSecret> secret_;
  std::unique_ptr<launcher::Spawner> forker_, commander_;  // here, and on other hosts
  std::map<core::NodeId, launcher::Spawner*> agents_;
};

}  // namespace regroup::cmd
