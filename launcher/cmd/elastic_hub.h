// The hub of an elastic job on several hosts: holds the links to their agents, passes messages between these
// and the coordinator, writes what members write. It has no member itself. docs/design/elastic_hosts.md.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/message.h"
#include "launcher/cmd/elastic_hub_options.h"
#include "launcher/cmd/finished_watch.h"
#include "launcher/cmd/lease_server.h"
#include "launcher/node/hosts.h"
#include "launcher/supervise/agent.h"
#include "launcher/supervise/channel.h"

namespace regroup::cmd {

// Used by the loop's thread.
class ElasticHub final : public launcher::AgentJob {
 public:
  // All hosts but those of joiners are to be these: others come, and those that are not among them leave.
  void follow(const std::vector<launcher::HostRequest>& named, const launcher::Grant& way);
  void say(const std::string& text) {
    if (!options_.quiet && !agent_.ending()) agent_.say(text);
  }

  // Those of `hosts` that are up are the first nodes of the job.
  ElasticHub(launcher::Agent& agent, ElasticHubOptions options, std::unique_ptr<node::Hosts> hosts);

  [[nodiscard]] core::Status start() override;
  void on_exit(const launcher::MemberExit&) override {}
  void on_coordinator(core::Fd socket, std::int32_t incarnation) override;
  [[nodiscard]] core::Duration orphan_timeout() const override { return options_.orphan_timeout; }
  [[nodiscard]] bool keeps_checkpoints() const override {
    return options_.setup.elastic->checkpoints.every > 0;
  }
  [[nodiscard]] launcher::OtherHosts* others() override { return hosts_.get(); }
  void finish(const std::function<void()>& then) override;
  void on_notice(core::TimePoint deadline) override;
  [[nodiscard]] std::optional<int> completed() const override { return trained_.status(); }
  [[nodiscard]] std::string unsaved() const override { return trained_.unsaved; }

 private:
  struct Guest {  // a host that came by an offer, or is on its way out
    explicit Guest(boost::asio::io_context& loop) : timer(loop) {}
    std::optional<GrantId> grant;
    core::Duration grace{};
    core::TimePoint deadline{};  // of one that leaves
    std::string failure = {};    // why it has not come, as was said last
    bool leaving = false, left = false;
    bool lent = false;                        // by a user: nobody had asked an allocator for it
    bool parked = false;                      // suspended: it leaves its members, and may be used again
    std::set<std::string> suspended_by = {};  // of a parked one, sources of notices
    bool returning = false;                   // when it has left, its allocator is asked to take it back
    boost::asio::steady_timer timer;
  };
  struct Part {  // slots of a host that the allocator gets, and which are to be left
    explicit Part(boost::asio::io_context& loop) : timer(loop) {}
    std::optional<GrantId> grant;  // who is told; none: the allocator is asked to take them
    std::uint32_t slots = 0;
    core::TimePoint deadline{};
    boost::asio::steady_timer timer;
  };
  struct Return {  // of a lost host
    explicit Return(boost::asio::io_context& loop) : timer(loop) {}
    boost::asio::steady_timer timer;
    core::Duration delay{};
    core::TimePoint came{};  // when it was back, if it is
    // Why it has not come back, since it was in the job.
    std::optional<std::set<std::string>> said = {};
  };
  void on_order(const core::Message& message);
  void on_agent_message(core::NodeId node, const core::Message& message);
  void on_notice(std::size_t index, const node::HostNotice& notice);
  void on_lost(std::size_t index, const core::Status& why);
  void tell_why_it_does_not_come(std::size_t index, const std::string& why);
  void bring_back_later(std::size_t index);
  void begin(std::size_t index);
  void set_up(std::size_t index, std::vector<node::Seat> seats);
  void look_at(std::size_t index);
  void came(std::size_t index, std::vector<node::Seat> seats);
  [[nodiscard]] core::Status on_offer(GrantId id, const Offer& offer);
  void end_without_hosts(core::Duration within);
  void add(const launcher::HostRequest& host, node::HostAccess way);
  void add(const launcher::HostRequest& host, const launcher::Grant& way) {
    add(host, node::HostAccess{way.before, way.after, host.address});
  }
  [[nodiscard]] node::HostAccess way_by(GrantId id);
  void recall(GrantId id, core::Duration within, const std::string& why);
  void on_gone(GrantId id);
  [[nodiscard]] core::Status on_again(GrantId id, const Again& again);
  [[nodiscard]] bool all_left(GrantId id) const;
  [[nodiscard]] core::Status on_wanted(GrantId id, const Recall& what);
  void take_part(std::size_t index, std::uint32_t slots, std::optional<GrantId> id, core::Duration within);
  void look_whether_parted(std::size_t index);
  void on_parted(std::size_t index);
  void return_part(std::size_t index);
  void keep_part(std::size_t index);
  void change_slots(std::size_t index, std::uint32_t slots);
  [[nodiscard]] core::Status on_growth(GrantId id, const Offer& offer);
  void on_resized(GrantId id, std::uint32_t members);
  void ask_for(std::uint32_t slots, GrantId id);
  [[nodiscard]] std::uint32_t missing() const;
  void look_for_idle_hosts();
  void release_idle_hosts();
  void release_idle_slots(std::uint32_t spare);
  void return_host(std::size_t index);
  [[nodiscard]] std::uint32_t room(bool with_lost) const;
  [[nodiscard]] std::optional<std::size_t> find(const std::string& host) const;
  void give_back(std::size_t index, core::Duration within, const std::string& why);
  void vacate(std::size_t index, core::Duration within);
  [[nodiscard]] bool hurry(std::size_t index, core::Duration within);
  void park(std::size_t index, core::Duration within, const std::string& source);
  void unpark(std::size_t index, const std::string& why);
  void look_whether_empty(std::size_t index);
  void on_left(std::size_t index, const std::string& how);
  [[nodiscard]] bool leaving(std::size_t index) const;
  [[nodiscard]] bool parked(std::size_t index) const;
  [[nodiscard]] bool lent(std::size_t index) const;
  void tell_coordinator(core::Body body, core::NodeId node = 0);
  [[nodiscard]] core::NodeUp news_of(std::size_t index) const;

  launcher::Agent& agent_;
  ElasticHubOptions options_;  // slots of hosts that come are added
  const std::unique_ptr<node::Hosts> hosts_;
  std::shared_ptr<launcher::Channel> coordinator_;
  TrainingEnd trained_;
  std::vector<core::NodeLost> untold_;          // while there was no coordinator
  std::map<std::size_t, Return> returns_;       // by host
  std::set<std::size_t> in_job_;                // hosts that have been set up, and not been lost since
  std::set<std::size_t> awaited_;               // hosts of the start that have not come yet
  std::map<std::size_t, std::uint32_t> seats_;  // by host, how many it has; those that are counted
  std::map<std::size_t, Guest> guests_;         // by host
  std::map<std::size_t, Part> parts_;           // by host
  std::map<std::string, GrantId> tokens_;       // of offers whose connection may be lost
  std::uint32_t size_ = 0;                      // slots that the job wants; 0: nobody has said
  std::uint32_t wanted_ = 0;                    // slots, once members have left; 0: no host goes back
  boost::asio::steady_timer idle_timer_;
  LeaseServer lease_server_;
};
}  // namespace regroup::cmd
