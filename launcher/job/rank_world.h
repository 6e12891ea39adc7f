// The World of fixed size that ranks of a job of -np N form when they join: an ElasticAgent on each
// host, and the coordinator in the agent's process of the launcher's host.
// docs/design/fixed_size_worlds.md.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/hosts.h"
#include "launcher/job/checkpoint_start.h"
#include "launcher/job/elastic_agent.h"
#include "membership/coordinator/coordinator.h"
#include "proto/message.h"

namespace regroup::spec {
struct JobSpec;
}  // namespace regroup::spec

namespace regroup::job {

struct RankWorldOptions {
  membership::Policy policy;
  membership::JobInfo job;    // `nodes` and `placed` by host number
  ElasticAgentOptions agent;  // of this host
};

// Options for a job of -np N whose rank i runs on host placed[i]; this host is 0. `socket`: where
// ranks of this host join.
[[nodiscard]] RankWorldOptions rank_world_options(const spec::JobSpec& spec, const std::string& job,
                                                  const std::string& socket,
                                                  std::vector<proto::NodeId> placed,
                                                  const WorldStart& world);

// Slots of the arena of `host`, for its ranks.
[[nodiscard]] std::uint32_t rank_slots(const std::vector<proto::NodeId>& placed,
                                       proto::NodeId host);

// Adds the variables that pass options to ranks that join without an agent, and to checkpoints of
// the agent.
void add_world_variables(const spec::JobSpec& spec, const WorldStart& world,
                         spec::Environment& environment);

// Used by the loop's thread.
class RankWorld final : public agent::MembershipJob {
 public:
  // `hosts`: the other hosts of the job; null: there are none.
  RankWorld(agent::Agent& agent, RankWorldOptions options, agent::Hosts* hosts);

  [[nodiscard]] base::Status start() override { return local_.start(); }
  // Called for ranks of all hosts.
  void on_exit(const process::MemberExit& exit) override;
  void on_notice(base::TimePoint deadline) override;
  void on_message(const proto::Message&) override {}
  [[nodiscard]] base::Duration still_needs() const override { return local_.still_needs(); }
  void finish(const std::function<void()>& then) override { local_.finish(then); }
  [[nodiscard]] std::optional<int> completed() const override {
    return local_.completed() ? local_.completed() : trained_.status();
  }
  [[nodiscard]] std::string unsaved() const override { return local_.unsaved(); }
  [[nodiscard]] bool keeps_checkpoints() const override { return local_.keeps_checkpoints(); }

 private:
  void on_agent(proto::NodeId node, const proto::Message& message);
  void refuse(proto::NodeId node);
  [[nodiscard]] bool runs(proto::NodeId node, proto::MemberId rank) const;
  void begin();
  void missing(const process::MemberExit& exit);
  void end(const std::string& why, int exit_status);
  void tell(proto::NodeId node, const proto::Body& body);
  void perform(const membership::Effects& effects);
  void perform_one(const membership::ToAgent& effect);
  void perform_one(const membership::Say& effect);
  template <class Other>
  void perform_one(const Other&) {}  // there is no journal, and there are no control commands

  agent::Agent& agent_;
  const membership::Policy policy_;
  const membership::JobInfo job_;
  const bool quiet_;
  agent::Hosts* const hosts_;
  ElasticAgent local_;
  std::optional<membership::Coordinator> coordinator_;  // since the first rank joined
  TrainingEnd trained_;
  boost::asio::steady_timer timer_;
  std::set<proto::MemberId> joined_;  // ranks
  // The first rank that ended with status 0 without a join.
  std::optional<process::MemberExit> unjoined_exit_;
  bool over_ = false;  // the World has failed, or all its members have left
};

}  // namespace regroup::job
