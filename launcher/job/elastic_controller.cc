// An agent may send only the messages of its own host. One that sends messages about nodes, or
// messages of the coordinator, is lost: a host that is not trusted must not remove others.
#include "launcher/job/elastic_controller.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/clock.h"
#include "base/status.h"
#include "launcher/job/elastic_agent.h"
#include "membership/coordinator/agent_facts.h"

namespace regroup::job {
namespace {

// Agents need 30 s at most to save and to kill their members.
constexpr std::chrono::seconds kLastSave(35);

}  // namespace

ElasticController::ElasticController(agent::Agent& agent, ElasticControllerOptions options,
                                     std::unique_ptr<agent::Hosts> hosts)
    : agent_(agent),
      options_(std::move(options)),
      hosts_(std::move(hosts)),
      slots_(options_.granted),
      timers_(agent.loop()),
      idle_timer_(agent.loop()),
      lease_server_(
          agent.loop(),
          {.offered = [this](lease::GrantId id,
                             const lease::LeaseOffer& offer) { return on_offer(id, offer); },
           .revoked = [this](lease::GrantId id,
                             const lease::LeaseRevoke& what) { revoke(id, what.within, what.why); },
           .gone = [this](lease::GrantId id) { on_gone(id); },
           .wanted = [this](lease::GrantId id,
                            const lease::LeaseRevoke& what) { return on_wanted(id, what); },
           .resized = [this](lease::GrantId id,
                             const lease::Resized& what) { on_resized(id, what.members); },
           .reconnected =
               [this](lease::GrantId id, const lease::LeaseReconnect& reconnect) {
                 return on_reconnect(id, reconnect);
               }}) {
  hosts_->set_elastic(
      {.membership = [this](proto::NodeId node,
                            const proto::Message& message) { on_agent_message(node, message); },
       .silent =
           [this](proto::NodeId node, bool silent) {
             tell_coordinator(proto::NodeSilent{node, silent}, node);
           },
       .noticed = [this](std::size_t index,
                         const agent::HostNotice& notice) { on_notice(index, notice); },
       .came =
           [this](std::size_t index) {
             options_.inventory ? query_inventory_of(index) : came(index, {});
           },
       .left = [this](std::size_t index) { leave(index, HostEvent::kEnded); }});
}

base::Status ElasticController::start() {
  if (options_.scaler) options_.scaler->listen([this](const std::string& text) { say(text); });
  agent::NodeEvents events;
  events.exited = [this](const process::MemberExit&) { agent_.look_whether_over(); };
  events.said = [this](const std::string& text) {
    if (!agent_.ending() && !options_.quiet) agent_.say(text);
  };
  events.unsaved = [this](const std::string& what) { trained_.unsaved = what; };
  events.used = [this](const std::string& host, const std::string& json, const auto& lives) {
    agent_.add_usage(host, json, lives);
  };
  hosts_->serve(
      std::move(events),
      [this](std::size_t index, const base::Status& why) { on_lost(index, why); }, agent_.out(),
      agent_.err());
  for (std::size_t index = 0; index < hosts_->size(); ++index) begin(index);
  if (options_.grants_socket.empty()) return {};
  if (const base::Status status = lease_server_.start(options_.grants_socket);
      !status.ok() && !options_.quiet)
    agent_.say(fmt::format("`regroup join` cannot reach this job: {}", status.message()));
  return {};
}

// Sets up a host of the start. One that is not up yet is handled like a host that is added later.
void ElasticController::begin(std::size_t index) {
  if (hosts_->is_coming(index)) {
    restarts_.await(index);
  } else if (!hosts_->is_up(index)) {
    retry_later(index);
  } else if (const auto resources = options_.first_resources.find(index);
             resources != options_.first_resources.end()) {
    set_up(index, std::move(resources->second));
  } else if (options_.inventory) {
    query_inventory_of(index);
  } else {
    set_up(index, {});
  }
}

// Also for a host that was lost before: it may have other GPUs now.
void ElasticController::query_inventory_of(std::size_t index) {
  hosts_->query_inventory(
      index, *options_.inventory,
      [this, index, id = hosts_->id(index)](const base::Result<std::string>& answer) {
        if (hosts_->id(index) != id || agent_.ending()) return;
        auto resources = options_.resources_of(
            options_.granted.at(index),
            effective_slots(slots_.given(index), hosts_->facts(index).slots), answer);
        if (!resources.ok()) return hosts_->give_up(id, resources.status());
        came(index, std::move(*resources));
      });
}

void ElasticController::came(std::size_t index, std::vector<agent::SlotResources> resources) {
  set_up(index, std::move(resources));
  restarts_.came(index, base::SystemClock().now());
  tell_coordinator(node_up_of(index), hosts_->id(index));
}

void ElasticController::set_up(std::size_t index, std::vector<agent::SlotResources> resources) {
  agent::Setup setup = options_.setup;
  restarts_.set_up(index);
  slots_.set_resources(index, static_cast<std::uint32_t>(resources.size()));
  if (setup.elastic) setup.elastic->slots = std::move(resources);
  setup.host = hosts_->id(index);
  setup.name = hosts_->name(index);
  setup.suspended_by = exits_.suspended_by(index);
  hosts_->set_up(index, setup, options_.app);
}

proto::NodeUp ElasticController::node_up_of(std::size_t index) const {
  proto::NodeUp up{.node = hosts_->id(index), .name = hosts_->name(index)};
  if (exits_.stays(index)) {
    up.slots = slots_.usable(index, hosts_->facts(index).slots);
    up.leased = slots_.leased(index);
    up.for_now = slots_.for_now(index);
  } else {
    up.for_now = exits_.suspended(index);
  }
  return up;
}

void ElasticController::on_coordinator(base::Fd socket, std::int32_t) {
  if (coordinator_) coordinator_->close();
  coordinator_ = std::make_shared<transport::Channel>(
      agent_.loop(), std::move(socket),
      [this](const proto::Message& message) { on_order(message); },
      // A restarted coordinator requests by Hello what it missed.
      [](const base::Status&) {});
  coordinator_->start();
  for (std::size_t index = 0; index < hosts_->size(); ++index) {
    if (hosts_->is_set_up(index)) tell_coordinator(node_up_of(index), hosts_->id(index));
  }
  for (const proto::NodeLost& lost : std::exchange(unreported_, {}))
    tell_coordinator(lost, lost.node);
  tell_coordinator(options_.known);
}

void ElasticController::tell_coordinator(proto::Body body, proto::NodeId node) {
  if (coordinator_) coordinator_->send({0, std::move(body), node});
}

void ElasticController::on_order(const proto::Message& message) {
  if (const auto* done = std::get_if<proto::JobDone>(&message.body)) {
    int lost = 0;
    for (std::size_t index = 0; index < hosts_->size(); ++index)
      lost += hosts_->is_up(index) ? 0 : 1;
    const auto& elastic = options_.setup.elastic;
    const bool saves = elastic && elastic->checkpoints.every > 0 && done->save_state;
    if (saves) hosts_->tell_membership({message.incarnation, *done, proto::kEveryNode});
    end_job(agent_, *done, options_.app, options_.quiet, lost, options_.known.resume,
            saves ? kLastSave : base::Duration());
  } else if (const auto* lost = std::get_if<proto::NodeLost>(&message.body)) {
    hosts_->give_up(lost->node, {base::Code::kPeerLost, lost->why});
  } else if (!agent_.ending() || !std::holds_alternative<proto::Start>(message.body)) {
    if (keeps_checkpoints()) trained_.hear(message.body, agent_.ending());
    if (message.node == proto::kEveryNode)
      hosts_->tell_membership(message);
    else
      hosts_->tell_membership(message.node, message);
  }
}

void ElasticController::on_agent_message(proto::NodeId node, const proto::Message& message) {
  const auto refuse = [&](std::string_view what) {
    const auto index = hosts_->index_of(node);
    hosts_->give_up(node,
                    base::invalid_argument(fmt::format("host {}: its agent sent a message {}",
                                                       index ? hosts_->name(*index) : "?", what)));
  };
  if (!membership::is_agent_message(message.body)) return refuse("that it may not send");
  trained_.hear(message.body, agent_.ending());
  if (coordinator_ && !coordinator_->send({message.incarnation, message.body, node}))
    refuse("larger than the limit");
}

void ElasticController::on_notice(std::size_t index, const agent::HostNotice& notice) {
  const HostLeases::Lease* lease = leases_.find(index);
  const bool leased = lease != nullptr && lease->grace > base::Duration::zero();
  const base::Duration usual = leased ? lease->grace : options_.notice_grace;
  const bool said = notice.within_ms != agent::HostNotice::kNotSaid;
  const base::Duration within = said ? std::chrono::milliseconds(notice.within_ms) : usual;
  if (notice.kind == agent::HostNotice::Kind::kOver) return resume(index, notice.why);
  if (notice.kind == agent::HostNotice::Kind::kSuspended) {
    suspend(index, within, notice.why);
  } else {
    give_back(index, within, notice.why);
  }
  end_without_hosts(within);
}

// Without a host that stays, no member can take over the state, so the job ends.
void ElasticController::end_without_hosts(base::Duration within) {
  for (std::size_t index = 0; index < hosts_->size(); ++index) {
    if (hosts_->is_up(index) && exits_.stays(index)) return;
  }
  if (!agent_.ending()) say("no host is left: the job ends");
  agent_.on_notice(within);
}

// The whole job ends, so no member can take over the state of the last ones: all hosts lose their
// slots.
void ElasticController::on_notice(base::TimePoint) {
  for (std::size_t index = 0; index < hosts_->size(); ++index) {
    const proto::NodeUp now = node_up_of(index);
    if (hosts_->is_up(index)) tell_coordinator(proto::NodeUp{now.node, now.name, 0}, now.node);
  }
}

void ElasticController::on_lost(std::size_t index, const base::Status& why) {
  trained_.lose(hosts_->id(index), hosts_->name(index), why);
  if (!agent_.ending()) {
    const AgentStage before = restarts_.lose(index);
    const auto follow_up = [this, index] {
      exits_.keeps_agent(index) ? retry_later(index) : leave(index, HostEvent::kLost);
    };
    if (before == AgentStage::kAwaited) {  // the coordinator does not know this host
      say(why.message());
      return follow_up();
    }
    if (before != AgentStage::kInJob) report_failed_start(index, why.message());
    const proto::NodeLost lost{hosts_->id(index), why.message()};
    if (coordinator_ && coordinator_->open())
      tell_coordinator(lost, lost.node);
    else
      unreported_.push_back(lost);
    timers_.cancel(HostTimers::Kind::kDrain, index);
    follow_up();
  }
  agent_.look_whether_over();
}

// Reports why an agent did not start, while its start is retried: the coordinator does not know the
// agent before its setup.
void ElasticController::report_failed_start(std::size_t index, const std::string& why) {
  if (const auto client = leases_.client(index)) {
    if (!leases_.is_news(index, why)) return;
    say(why);
    lease_server_.tell(*client, why);
  } else if (exits_.stays(index) && restarts_.is_news(index, why)) {
    say(fmt::format("{}; trying again", why));
  }
}

// Ends all leases: `regroup join` waits for that.
void ElasticController::finish(const std::function<void()>& then) {
  hosts_->finish([this, then] {
    for (const auto& clients : {leases_.clients(), reclaims_.clients()}) {
      for (const lease::GrantId id : clients) lease_server_.end(id, "the job is over");
    }
    then();
  });
}

void ElasticController::retry_later(std::size_t index) {
  timers_.set(HostTimers::Kind::kRestart, index, restarts_.delay(index, base::SystemClock().now()),
              [this, index] {
                if (!agent_.ending() && exits_.keeps_agent(index)) hosts_->bring_back(index);
              });
}

// The host of this name that has not left the job.
std::optional<std::size_t> ElasticController::find(const std::string& host) const {
  for (std::size_t index = 0; index < hosts_->size(); ++index) {
    if (hosts_->name(index) == host && !exits_.has_left(index)) return index;
  }
  return std::nullopt;
}

void ElasticController::add(const spec::HostRequest& host, const spec::Grant& way, bool leased) {
  add(host, agent::HostAccess{way.before, way.after, host.address}, leased);
}
void ElasticController::add(const spec::HostRequest& host, agent::HostAccess way, bool leased) {
  slots_.add(host.slots, leased);
  options_.granted.push_back(host);
  hosts_->add({host.name, host.here, host.user, std::move(way)});
}

}  // namespace regroup::job
