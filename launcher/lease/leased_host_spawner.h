// In the controller: starts agents on leased hosts through the `regroup join` process that leases
// them. That process's side is leased_agents.h.
#pragma once

#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/status.h"
#include "launcher/agent/spawner.h"
#include "launcher/lease/grant_lines.h"
#include "launcher/transport/job_secret.h"

namespace regroup::lease {

// A `regroup join` that starts agents.
struct JoinerLink {
  // Sends a line and, if any, the secret after it. False: the connection is lost. Empty: the client
  // has left.
  std::function<bool(const std::string& line, const transport::JobSecret* secret)> send;
  std::function<void(const AgentNews&)> heard;  // called for each event; empty: no spawner attached
  std::function<void()> gone;                   // called once its hosts have been released
};

// A Spawner that sends its orders over the connection of a `regroup join`. Used by the loop's
// thread.
class LeasedHostSpawner final : public agent::Spawner {
 public:
  LeasedHostSpawner(boost::asio::io_context& loop,
                    std::shared_ptr<const transport::JobSecret> secret, agent::SpawnEvents events,
                    std::shared_ptr<JoinerLink> joiner);
  ~LeasedHostSpawner() override;
  void start(agent::AgentOrder order) override;
  void end(proto::NodeId node) override;

 private:
  struct Agent {
    Agent(boost::asio::io_context& loop, agent::AgentOrder o) : order(std::move(o)), timer(loop) {}
    agent::AgentOrder order;
    boost::asio::steady_timer timer;  // limits its start, or its end
    bool sent = false;
    bool up = false;
    bool ending = false;
  };
  void fill();
  void send(Agent& agent);
  void heard(const AgentNews& news);
  void wait(proto::NodeId node, base::Duration limit, const base::Status& late);
  void report_later(proto::NodeId node, base::Status why);
  void report(proto::NodeId node, const base::Status& why);

  boost::asio::io_context& loop_;
  const std::shared_ptr<const transport::JobSecret> secret_;
  const agent::SpawnEvents events_;
  const std::shared_ptr<JoinerLink> joiner_;
  std::map<proto::NodeId, Agent> agents_;
  std::deque<proto::NodeId> waiting_;
  std::size_t on_their_way_ = 0;
  bool secret_sent_ = false;
  // False after destruction; posted handlers then do nothing.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace regroup::lease
