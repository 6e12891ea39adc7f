// An agent may send only the messages of its own host. One that sends messages about nodes, or
// messages of the coordinator, is lost: a host that is not trusted must not remove others.
#include "launcher/job/elastic_controller.h"

#include <fmt/format.h>

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
                                     std::unique_ptr<agent::Hosts> links)
    : agent_(agent),
      options_(std::move(options)),
      links_(std::move(links)),
      hosts_(agent.loop(), options_, *links_, host_events()),
      providers_(agent.loop(), hosts_, {options_.notice_grace, options_.scaler, options_.spares},
                 provider_events()) {
  links_->set_elastic(link_events());
}

agent::HostsElastic ElasticController::link_events() {
  return {.membership = [this](proto::NodeId node,
                               const proto::Message& message) { on_agent_message(node, message); },
          .silent =
              [this](proto::NodeId node, bool silent) {
                tell_coordinator(proto::NodeSilent{node, silent}, node);
              },
          .noticed = [this](std::size_t host,
                            const agent::HostNotice& notice) { on_notice(host, notice); },
          .came = [this](std::size_t host) { hosts_.came(host); },
          .dismissed = [this](std::size_t host) { hosts_.ended(host); }};
}

agent::NodeEvents ElasticController::member_events() {
  agent::NodeEvents events;
  events.started = [this](std::uint32_t, const base::Status& why) {
    not_runnable_.insert_or_assign(why.message(), why);
  };
  events.exited = [this](const process::MemberExit&) { agent_.look_whether_over(); };
  events.said = [this](const std::string& text) { say(text); };
  events.unsaved = [this](const std::string& what) { trained_.unsaved = what; };
  events.used = [this](const std::string& host, const std::string& json, const auto& lives) {
    agent_.add_usage(host, json, lives);
  };
  return events;
}

ElasticHosts::Events ElasticController::host_events() {
  return {
      .ending = [this] { return agent_.ending(); },
      .said = [this](const std::string& text) { say(text); },
      .changed = [this](const proto::NodeUp& up) { tell_coordinator(up, up.node); },
      .lost =
          [this](const proto::NodeLost& lost) {
            if (coordinator_ && coordinator_->open())
              tell_coordinator(lost, lost.node);
            else
              unreported_.push_back(lost);
          },
      .not_started = [this](std::size_t host,
                            const std::string& why) { return providers_.not_started(host, why); },
      .left =
          [this](std::size_t host, HostStage before, const std::string& how) {
            tell_coordinator(proto::NodeLost{links_->id(host), how}, links_->id(host));
            providers_.left(host, before);
          }};
}

HostProviders::Events ElasticController::provider_events() {
  return {.ending = [this] { return agent_.ending(); },
          .said = [this](const std::string& text) { say(text); },
          .demanded = [this](base::Duration within) { end_without_hosts(within); }};
}

base::Status ElasticController::start() {
  links_->serve(
      member_events(), [this](std::size_t host, const base::Status& why) { on_lost(host, why); },
      agent_.out(), agent_.err());
  hosts_.start();
  if (const base::Status status = providers_.start(options_.grants_socket); !status.ok())
    say(fmt::format("`regroup join` cannot reach this job: {}", status.message()));
  return {};
}

void ElasticController::on_coordinator(base::Fd socket, std::int32_t) {
  if (coordinator_) coordinator_->close();
  coordinator_ = std::make_shared<transport::Channel>(
      agent_.loop(), std::move(socket),
      [this](const proto::Message& message) { on_order(message); },
      // A restarted coordinator requests by Hello what it missed.
      [](const base::Status&) {});
  coordinator_->start();
  for (std::size_t index = 0; index < links_->size(); ++index) {
    if (links_->is_set_up(index)) tell_coordinator(hosts_.node_up(index), links_->id(index));
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
    for (std::size_t index = 0; index < links_->size(); ++index)
      lost += links_->is_up(index) ? 0 : 1;
    const auto& elastic = options_.setup.elastic;
    const bool saves = elastic && elastic->checkpoints.every > 0 && done->save_state;
    if (saves) links_->tell_membership({message.incarnation, *done, proto::kEveryNode});
    proto::JobDone told = *done;
    told.exit_code = status_of(*done);
    end_job(agent_, told, options_.app, options_.quiet, lost, options_.known.resume,
            saves ? kLastSave : base::Duration());
  } else if (const auto* lost = std::get_if<proto::NodeLost>(&message.body)) {
    links_->give_up(lost->node, {base::Code::kPeerLost, lost->why});
  } else if (!agent_.ending() || !std::holds_alternative<proto::Start>(message.body)) {
    if (keeps_checkpoints()) trained_.hear(message.body, agent_.ending());
    if (message.node == proto::kEveryNode)
      links_->tell_membership(message);
    else
      links_->tell_membership(message.node, message);
  }
}

// A program or folder that all hosts lack has the status that it has on this one.
int ElasticController::status_of(const proto::JobDone& done) const {
  if (done.exit_code == 0 || ran_ || not_runnable_.size() != links_->size()) return done.exit_code;
  return agent_.status_of_failed_start(not_runnable_.begin()->second);
}

void ElasticController::on_agent_message(proto::NodeId node, const proto::Message& message) {
  const auto refuse = [&](std::string_view what) {
    const auto index = links_->index_of(node);
    links_->give_up(node,
                    base::invalid_argument(fmt::format("host {}: its agent sent a message {}",
                                                       index ? links_->name(*index) : "?", what)));
  };
  if (!membership::is_agent_message(message.body)) return refuse("that it may not send");
  trained_.hear(message.body, agent_.ending());
  ran_ = ran_ || std::holds_alternative<proto::MemberReady>(message.body);
  if (coordinator_ && !coordinator_->send({message.incarnation, message.body, node}))
    refuse("larger than the limit");
}

void ElasticController::on_notice(std::size_t host, const agent::HostNotice& notice) {
  const bool said = notice.within_ms != agent::HostNotice::kNotSaid;
  const base::Duration within = said ? std::chrono::milliseconds(notice.within_ms)
                                     : providers_.grace(host).value_or(options_.notice_grace);
  if (notice.kind == agent::HostNotice::Kind::kOver) return hosts_.resume(host, notice.why);
  if (notice.kind == agent::HostNotice::Kind::kSuspended) {
    hosts_.suspend(host, within, notice.why);
  } else {
    hosts_.demand(host, within, notice.why);
  }
  end_without_hosts(within);
}

// Without a host that stays, no member can take over the state, so the job ends.
void ElasticController::end_without_hosts(base::Duration within) {
  if (hosts_.any_stays()) return;
  say("no host is left: the job ends");
  agent_.on_notice(within);
}

// The whole job ends, so no member can take over the state of the last ones: all hosts lose their
// slots.
void ElasticController::on_notice(base::TimePoint) {
  for (std::size_t host = 0; host < links_->size(); ++host) {
    const proto::NodeId node = links_->id(host);
    if (links_->is_up(host)) tell_coordinator(proto::NodeUp{node, links_->name(host), 0}, node);
  }
}

void ElasticController::on_lost(std::size_t host, const base::Status& why) {
  trained_.lose(links_->id(host), links_->name(host), why);
  if (!agent_.ending()) hosts_.lost(host, why);
  agent_.look_whether_over();
}

void ElasticController::finish(const std::function<void()>& then) {
  links_->finish([this, then] {
    providers_.finish();
    then();
  });
}

}  // namespace regroup::job
