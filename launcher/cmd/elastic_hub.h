// The hub of an elastic job on several hosts: holds the links to their agents, passes messages between these
// and the coordinator, writes what members write. It has no member itself. docs/design/elastic_hosts.md.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "core/clock.h"
#include "core/message.h"
#include "launcher/node/hosts.h"
#include "launcher/supervise/agent.h"
#include "launcher/supervise/channel.h"

namespace regroup::cmd {

struct ElasticHubOptions {
  node::Setup setup;                 // of every host, but for its number and name
  launcher::App app;                 // looked for on each
  std::vector<std::uint32_t> slots;  // by host; 0: as many as it has cores
  core::Duration orphan_timeout{};
  bool quiet = false;
};

// Used by the loop's thread.
class ElasticHub final : public launcher::AgentJob {
 public:
  // Those of `hosts` that are up are the first nodes of the job.
  ElasticHub(launcher::Agent& agent, ElasticHubOptions options, std::unique_ptr<node::Hosts> hosts);

  [[nodiscard]] core::Status start() override;
  void on_exit(const launcher::MemberExit&) override {}
  void on_coordinator(core::Fd socket, std::int32_t incarnation) override;
  [[nodiscard]] core::Duration orphan_timeout() const override { return options_.orphan_timeout; }
  [[nodiscard]] launcher::OtherHosts* others() override { return hosts_.get(); }
  void finish(const std::function<void()>& then) override { hosts_->finish(then); }

 private:
  struct Return {  // of a lost host
    explicit Return(boost::asio::io_context& loop) : timer(loop) {}
    boost::asio::steady_timer timer;
    core::Duration delay{};
    core::TimePoint came{};  // when it was back, if it is
  };
  void on_order(const core::Message& message);
  void on_agent_message(core::NodeId node, const core::Message& message);
  void on_lost(std::size_t index, const core::Status& why);
  void bring_back_later(std::size_t index);
  void set_up(std::size_t index);
  void tell_coordinator(core::Body body, core::NodeId node = 0);
  [[nodiscard]] core::NodeUp news_of(std::size_t index) const;

  launcher::Agent& agent_;
  const ElasticHubOptions options_;
  const std::unique_ptr<node::Hosts> hosts_;
  std::shared_ptr<launcher::Channel> coordinator_;
  std::vector<core::NodeLost> untold_;     // while there was no coordinator
  std::map<std::size_t, Return> returns_;  // by host
};

}  // namespace regroup::cmd
