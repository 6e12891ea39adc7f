// The controller of an elastic job on several hosts: holds the links to their agents, forwards
// messages between these and the coordinator, and writes the members' output
// (docs/design/elastic_hosts.md). It has no member. docs/design/controller.md says what it is made
// of.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/hosts.h"
#include "launcher/job/elastic_controller_options.h"
#include "launcher/job/elastic_hosts.h"
#include "launcher/job/finished_watch.h"
#include "launcher/job/host_providers.h"
#include "launcher/transport/channel.h"
#include "proto/message.h"

namespace regroup::job {

// Used by the loop's thread.
class ElasticController final : public agent::AgentJob {
 public:
  // The hosts of `links` that are up are the first nodes of the job.
  ElasticController(agent::Agent& agent, ElasticControllerOptions options,
                    std::unique_ptr<agent::Hosts> links);

  // Makes `named` the hosts of the job: HostProviders::follow().
  void follow(const std::vector<spec::HostRequest>& named, const spec::Grant& way) {
    providers_.follow(named, way);
  }
  // Shows a sentence to the user, unless the job is being ended.
  void say(const std::string& text) {
    if (!options_.quiet && !agent_.ending()) agent_.say(text);
  }

  [[nodiscard]] base::Status start() override;
  void on_exit(const process::MemberExit&) override {}
  void on_coordinator(base::Fd socket, std::int32_t incarnation) override;
  [[nodiscard]] base::Duration orphan_timeout() const override { return options_.orphan_timeout; }
  [[nodiscard]] bool keeps_checkpoints() const override {
    return options_.setup.elastic->checkpoints.every > 0;
  }
  [[nodiscard]] agent::OtherHosts* others() override { return links_.get(); }
  void finish(const std::function<void()>& then) override;
  void on_notice(base::TimePoint deadline) override;
  [[nodiscard]] std::optional<int> completed() const override { return trained_.status(); }
  [[nodiscard]] std::string unsaved() const override { return trained_.unsaved; }

 private:
  [[nodiscard]] agent::HostsElastic link_events();
  [[nodiscard]] agent::NodeEvents member_events();
  [[nodiscard]] ElasticHosts::Events host_events();
  [[nodiscard]] HostProviders::Events provider_events();
  void on_order(const proto::Message& message);
  [[nodiscard]] int status_of(const proto::JobDone& done) const;
  void on_agent_message(proto::NodeId node, const proto::Message& message);
  void on_notice(std::size_t host, const agent::HostNotice& notice);
  void on_lost(std::size_t host, const base::Status& why);
  void end_without_hosts(base::Duration within);
  void tell_coordinator(proto::Body body, proto::NodeId node = 0);

  agent::Agent& agent_;
  const ElasticControllerOptions options_;
  const std::unique_ptr<agent::Hosts> links_;
  std::shared_ptr<transport::Channel> coordinator_;
  std::vector<proto::NodeLost> unreported_;  // losses while no coordinator ran
  // Why hosts cannot run the program, by the message, which names the host.
  std::map<std::string, base::Status> not_runnable_;
  bool ran_ = false;  // some member has joined
  TrainingEnd trained_;
  ElasticHosts hosts_;
  HostProviders providers_;
};
}  // namespace regroup::job
