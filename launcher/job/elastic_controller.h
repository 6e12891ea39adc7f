// The controller of an elastic job on several hosts: holds the links to their agents, forwards
// messages between these and the coordinator, and writes the members' output
// (docs/design/elastic_hosts.md). It has no member.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/hosts.h"
#include "launcher/job/agent_restarts.h"
#include "launcher/job/elastic_controller_options.h"
#include "launcher/job/finished_watch.h"
#include "launcher/job/host_exits.h"
#include "launcher/job/host_leases.h"
#include "launcher/job/host_slots.h"
#include "launcher/job/host_timers.h"
#include "launcher/job/idle_hosts.h"
#include "launcher/job/slot_reclaims.h"
#include "launcher/lease/lease_server.h"
#include "launcher/transport/channel.h"
#include "proto/message.h"

namespace regroup::job {

// Used by the loop's thread.
class ElasticController final : public agent::AgentJob {
 public:
  // The hosts of `hosts` that are up are the first nodes of the job.
  ElasticController(agent::Agent& agent, ElasticControllerOptions options,
                    std::unique_ptr<agent::Hosts> hosts);

  // Makes `named` the hosts of the job, except for leased ones: adds missing hosts, drains the
  // others.
  void follow(const std::vector<spec::HostRequest>& named, const spec::Grant& way);
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
  [[nodiscard]] agent::OtherHosts* others() override { return hosts_.get(); }
  void finish(const std::function<void()>& then) override;
  void on_notice(base::TimePoint deadline) override;
  [[nodiscard]] std::optional<int> completed() const override { return trained_.status(); }
  [[nodiscard]] std::string unsaved() const override { return trained_.unsaved; }

 private:
  void on_order(const proto::Message& message);
  void on_agent_message(proto::NodeId node, const proto::Message& message);
  void on_notice(std::size_t index, const agent::HostNotice& notice);
  void on_lost(std::size_t index, const base::Status& why);
  void report_failed_start(std::size_t index, const std::string& why);
  void retry_later(std::size_t index);
  void begin(std::size_t index);
  void set_up(std::size_t index, std::vector<agent::SlotResources> resources);
  void query_inventory_of(std::size_t index);
  void came(std::size_t index, std::vector<agent::SlotResources> resources);
  [[nodiscard]] base::Status on_offer(lease::GrantId id, const lease::LeaseOffer& offer);
  void end_without_hosts(base::Duration within);
  void add(const spec::HostRequest& host, agent::HostAccess way, bool leased);
  void add(const spec::HostRequest& host, const spec::Grant& way, bool leased = false);
  [[nodiscard]] agent::HostAccess access_through(lease::GrantId id);
  void revoke(lease::GrantId id, base::Duration within, const std::string& why);
  void on_gone(lease::GrantId id);
  [[nodiscard]] base::Status on_reconnect(lease::GrantId id,
                                          const lease::LeaseReconnect& reconnect);
  void end_if_free(lease::GrantId id, const std::string& text);
  [[nodiscard]] base::Status on_wanted(lease::GrantId id, const lease::LeaseRevoke& what);
  void reclaim_slots(std::size_t index, std::uint32_t slots, std::optional<lease::GrantId> id,
                     base::Duration within);
  void check_reclaim(std::size_t index);
  void on_slots_free(std::size_t index);
  void return_slots(std::size_t index);
  void keep_slots(std::size_t index);
  void change_slots(std::size_t index, std::uint32_t slots, bool for_now = false);
  [[nodiscard]] base::Status on_growth(lease::GrantId id, const lease::LeaseOffer& offer);
  void on_resized(lease::GrantId id, std::uint32_t members);
  void ask_for(std::uint32_t slots, lease::GrantId id);
  [[nodiscard]] std::vector<HostUse> uses() const;
  void poll_idle_hosts();
  void release_idle_hosts();
  void return_host(std::size_t index);
  [[nodiscard]] std::optional<std::size_t> find(const std::string& host) const;
  void give_back(std::size_t index, base::Duration within, const std::string& why);
  void say_change(std::size_t index, const HostExits::Change& change, base::Duration within,
                  const std::string& why);
  void drain(std::size_t index);
  void suspend(std::size_t index, base::Duration within, const std::string& source);
  void resume(std::size_t index, const std::string& why);
  void check_drained(std::size_t index);
  void leave(std::size_t index, HostEvent event);
  void tell_coordinator(proto::Body body, proto::NodeId node = 0);
  [[nodiscard]] proto::NodeUp node_up_of(std::size_t index) const;

  agent::Agent& agent_;
  ElasticControllerOptions options_;  // `granted` grows with the hosts
  const std::unique_ptr<agent::Hosts> hosts_;
  std::shared_ptr<transport::Channel> coordinator_;
  TrainingEnd trained_;
  std::vector<proto::NodeLost> unreported_;  // losses while no coordinator ran
  HostSlots slots_;
  AgentRestarts restarts_;
  HostExits exits_;
  HostLeases leases_;
  SlotReclaims reclaims_;
  HostTimers timers_;
  std::uint32_t size_ = 0;    // slots that the job needs; 0: not known
  std::uint32_t wanted_ = 0;  // slots to keep once members have left; 0: keep all hosts
  boost::asio::steady_timer idle_timer_;
  lease::LeaseServer lease_server_;
};
}  // namespace regroup::job
