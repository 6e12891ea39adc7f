// What an agent says of nodes, or to other agents, is not passed on: it ends its link.
#include "launcher/cmd/elastic_hub.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "launcher/cmd/elastic_agent.h"

namespace regroup::cmd {
namespace {

constexpr core::Duration kFirstReturn = std::chrono::seconds(1);  // doubles with each failure ...
constexpr core::Duration kLastReturn = std::chrono::seconds(30);
constexpr core::Duration kWasBack = std::chrono::seconds(3);  // ... unless the host was there so long

bool is_agents(const core::Body& body) {
  return std::holds_alternative<core::MemberReady>(body) ||
         std::holds_alternative<core::MemberDrained>(body) ||
         std::holds_alternative<core::MemberLost>(body) || std::holds_alternative<core::Report>(body) ||
         std::holds_alternative<core::HelloReply>(body) || std::holds_alternative<core::Contacts>(body) ||
         std::holds_alternative<core::PeerSuspect>(body) || std::holds_alternative<core::Taught>(body) ||
         std::holds_alternative<core::Learned>(body);
}

}  // namespace

ElasticHub::ElasticHub(launcher::Agent& agent, ElasticHubOptions options, std::unique_ptr<node::Hosts> hosts)
    : agent_(agent), options_(std::move(options)), hosts_(std::move(hosts)) {
  hosts_->set_elastic(
      {.membership = [this](core::NodeId node,
                            const core::Message& message) { on_agent_message(node, message); },
       .silent =
           [this](core::NodeId node, bool silent) {
             tell_coordinator(core::NodeSilent{node, silent}, node);
           },
       .came =
           [this](std::size_t index) {
             set_up(index);
             if (const auto back = returns_.find(index); back != returns_.end())
               back->second.came = core::SystemClock().now();
             tell_coordinator(news_of(index), hosts_->id(index));
           }});
}

core::Status ElasticHub::start() {
  launcher::NodeEvents events;
  events.exited = [this](const launcher::MemberExit&) { agent_.look_whether_over(); };
  events.said = [this](const std::string& text) {
    if (!agent_.ending() && !options_.quiet) agent_.say(text);
  };
  hosts_->serve(
      std::move(events), [this](std::size_t index, const core::Status& why) { on_lost(index, why); },
      agent_.out(), agent_.err());
  for (std::size_t index = 0; index < hosts_->size(); ++index) {
    if (hosts_->is_up(index)) set_up(index);
    if (!hosts_->is_up(index)) bring_back_later(index);
  }
  return {};
}

void ElasticHub::set_up(std::size_t index) {
  node::Setup setup = options_.setup;
  setup.host = hosts_->id(index);
  setup.name = hosts_->name(index);
  hosts_->set_up(index, setup, options_.app);
}

core::NodeUp ElasticHub::news_of(std::size_t index) const {
  const std::uint32_t given = options_.slots.at(index);
  return {hosts_->id(index), hosts_->name(index), given != 0 ? given : hosts_->facts(index).slots};
}

void ElasticHub::on_coordinator(core::Fd socket, std::int32_t) {
  if (coordinator_) coordinator_->close();
  coordinator_ = std::make_shared<launcher::Channel>(
      agent_.loop(), std::move(socket), [this](const core::Message& message) { on_order(message); },
      // What it misses until the guardian has restarted it, it asks for with Hello.
      [](const core::Status&) {});
  coordinator_->start();
  for (std::size_t index = 0; index < hosts_->size(); ++index) {
    if (hosts_->is_up(index)) tell_coordinator(news_of(index), hosts_->id(index));
  }
  for (const core::NodeLost& lost : std::exchange(untold_, {})) tell_coordinator(lost, lost.node);
  tell_coordinator(core::NodesKnown{});
}

void ElasticHub::tell_coordinator(core::Body body, core::NodeId node) {
  if (coordinator_) coordinator_->send({0, std::move(body), node});
}

void ElasticHub::on_order(const core::Message& message) {
  if (const auto* done = std::get_if<core::JobDone>(&message.body)) {
    end_job(agent_, *done, options_.app, options_.quiet);
  } else if (const auto* lost = std::get_if<core::NodeLost>(&message.body)) {
    hosts_->give_up(lost->node, {core::Code::kPeerLost, lost->why});
  } else if (!agent_.ending()) {
    if (message.node == core::kEveryNode)
      hosts_->tell_membership(message);
    else
      hosts_->tell_membership(message.node, message);
  }
}

void ElasticHub::on_agent_message(core::NodeId node, const core::Message& message) {
  if (!is_agents(message.body)) {
    const auto index = hosts_->index_of(node);
    return hosts_->give_up(
        node, core::invalid_argument(fmt::format("host {}: its agent said what only others may say",
                                                 index ? hosts_->name(*index) : "?")));
  }
  if (coordinator_) coordinator_->send({message.incarnation, message.body, node});
}

void ElasticHub::on_lost(std::size_t index, const core::Status& why) {
  if (!agent_.ending()) {
    const core::NodeLost lost{hosts_->id(index), why.message()};
    if (coordinator_ && coordinator_->open())
      tell_coordinator(lost, lost.node);
    else
      untold_.push_back(lost);
    bring_back_later(index);
  }
  agent_.look_whether_over();
}

void ElasticHub::bring_back_later(std::size_t index) {
  Return& back = returns_.try_emplace(index, agent_.loop()).first->second;
  const core::TimePoint came = std::exchange(back.came, core::TimePoint());
  if (came != core::TimePoint() && core::SystemClock().now() - came > kWasBack) back.delay = {};
  back.delay = std::clamp<core::Duration>(2 * back.delay, kFirstReturn, kLastReturn);
  back.timer.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(back.delay));
  back.timer.async_wait([this, index](const boost::system::error_code& error) {
    if (!error && !agent_.ending()) hosts_->bring_back(index);
  });
}

}  // namespace regroup::cmd
