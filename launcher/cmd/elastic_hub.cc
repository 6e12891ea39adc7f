// What an agent says of nodes, or to other agents, is not passed on: it ends its link.
#include "launcher/cmd/elastic_hub.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "elastic/membership/agent_facts.h"
#include "launcher/cmd/elastic_agent.h"
#include "launcher/supervise/due.h"

namespace regroup::cmd {
namespace {

constexpr std::chrono::seconds kLastSave(35);  // for agents to take it and kill their members: 30 s at most
constexpr core::Duration kFirstReturn = std::chrono::seconds(1);  // doubles with each failure ...
constexpr core::Duration kLastReturn = std::chrono::seconds(30);
constexpr std::chrono::milliseconds kLook{50};                // whether a host that leaves is empty
constexpr std::size_t kMostSources = 16;                      // of notices that have suspended a host
constexpr core::Duration kWasBack = std::chrono::seconds(3);  // ... unless the host was there so long

}  // namespace

ElasticHub::ElasticHub(launcher::Agent& agent, ElasticHubOptions options, std::unique_ptr<node::Hosts> hosts)
    : agent_(agent),
      options_(std::move(options)),
      hosts_(std::move(hosts)),
      idle_timer_(agent.loop()),
      lease_server_(
          agent.loop(),
          {.offered = [this](GrantId id, const Offer& offer) { return on_offer(id, offer); },
           .recalled = [this](GrantId id, const Recall& what) { recall(id, what.within, what.why); },
           .gone = [this](GrantId id) { on_gone(id); },
           .wanted = [this](GrantId id, const Recall& what) { return on_wanted(id, what); },
           .resized = [this](GrantId id, const Resized& what) { on_resized(id, what.members); },
           .again = [this](GrantId id, const Again& again) { return on_again(id, again); }}) {
  hosts_->set_elastic(
      {.membership = [this](core::NodeId node,
                            const core::Message& message) { on_agent_message(node, message); },
       .silent =
           [this](core::NodeId node, bool silent) {
             tell_coordinator(core::NodeSilent{node, silent}, node);
           },
       .noticed = [this](std::size_t index, const node::HostNotice& notice) { on_notice(index, notice); },
       .came = [this](std::size_t index) { options_.inventory ? look_at(index) : came(index, {}); },
       .left = [this](std::size_t index) { on_left(index, "is given back"); }});
}

core::Status ElasticHub::start() {
  if (options_.scaler) options_.scaler->listen([this](const std::string& text) { say(text); });
  launcher::NodeEvents events;
  events.exited = [this](const launcher::MemberExit&) { agent_.look_whether_over(); };
  events.said = [this](const std::string& text) {
    if (!agent_.ending() && !options_.quiet) agent_.say(text);
  };
  events.unsaved = [this](const std::string& what) { trained_.unsaved = what; };
  events.used = [this](const std::string& host, const std::string& json, const auto& lives) {
    agent_.add_usage(host, json, lives);
  };
  hosts_->serve(
      std::move(events), [this](std::size_t index, const core::Status& why) { on_lost(index, why); },
      agent_.out(), agent_.err());
  for (std::size_t index = 0; index < hosts_->size(); ++index) begin(index);
  if (options_.grants_socket.empty()) return {};
  if (const core::Status status = lease_server_.start(options_.grants_socket);
      !status.ok() && !options_.quiet)
    agent_.say(fmt::format("`regroup join` will not find this job: {}", status.message()));
  return {};
}

// A host of the start. One that is late comes, or is lost, as one that is added.
void ElasticHub::begin(std::size_t index) {
  if (hosts_->is_coming(index)) {
    awaited_.insert(index);
  } else if (!hosts_->is_up(index)) {
    bring_back_later(index);
  } else if (const auto seats = options_.first.find(index); seats != options_.first.end()) {
    set_up(index, std::move(seats->second));
  } else if (options_.inventory) {
    look_at(index);
  } else {
    set_up(index, {});
  }
}

// It may have other GPUs than before it was lost.
void ElasticHub::look_at(std::size_t index) {
  hosts_->query_inventory(index, *options_.inventory,
                          [this, index, id = hosts_->id(index)](const core::Result<std::string>& answer) {
                            if (hosts_->id(index) != id || agent_.ending()) return;
                            const std::uint32_t given = options_.slots.at(index);
                            auto seats =
                                options_.seats(options_.granted.at(index),
                                               given != 0 ? given : hosts_->facts(index).slots, answer);
                            if (!seats.ok()) return hosts_->give_up(id, seats.status());
                            came(index, std::move(*seats));
                          });
}

void ElasticHub::came(std::size_t index, std::vector<node::Seat> seats) {
  awaited_.erase(index);
  set_up(index, std::move(seats));
  if (const auto back = returns_.find(index); back != returns_.end())
    back->second.came = core::SystemClock().now();
  tell_coordinator(news_of(index), hosts_->id(index));
}

void ElasticHub::set_up(std::size_t index, std::vector<node::Seat> seats) {
  node::Setup setup = options_.setup;
  in_job_.insert(index);
  seats_.erase(index);
  if (!seats.empty()) seats_[index] = static_cast<std::uint32_t>(seats.size());
  if (setup.elastic) setup.elastic->seats = std::move(seats);
  setup.host = hosts_->id(index);
  setup.name = hosts_->name(index);
  if (parked(index)) {
    const auto& sources = guests_.at(index).suspended_by;
    setup.suspended_by.assign(sources.begin(), sources.end());
  }
  hosts_->set_up(index, setup, options_.app);
}

core::NodeUp ElasticHub::news_of(std::size_t index) const {
  if (leaving(index))
    return {.node = hosts_->id(index), .name = hosts_->name(index), .for_now = parked(index)};
  const std::uint32_t given = options_.slots.at(index);
  const auto seats = seats_.find(index);
  std::uint32_t slots = given != 0 ? given : hosts_->facts(index).slots;
  if (seats != seats_.end()) slots = given != 0 ? std::min(given, seats->second) : seats->second;
  return {.node = hosts_->id(index),
          .name = hosts_->name(index),
          .slots = slots,
          .lent = lent(index),
          .for_now = parts_.contains(index)};
}

void ElasticHub::on_coordinator(core::Fd socket, std::int32_t) {
  if (coordinator_) coordinator_->close();
  coordinator_ = std::make_shared<launcher::Channel>(
      agent_.loop(), std::move(socket), [this](const core::Message& message) { on_order(message); },
      // What it misses until the guardian has restarted it, it asks for with Hello.
      [](const core::Status&) {});
  coordinator_->start();
  for (std::size_t index = 0; index < hosts_->size(); ++index) {
    if (hosts_->is_set_up(index)) tell_coordinator(news_of(index), hosts_->id(index));
  }
  for (const core::NodeLost& lost : std::exchange(untold_, {})) tell_coordinator(lost, lost.node);
  tell_coordinator(options_.known);
}

void ElasticHub::tell_coordinator(core::Body body, core::NodeId node) {
  if (coordinator_) coordinator_->send({0, std::move(body), node});
}

void ElasticHub::on_order(const core::Message& message) {
  if (const auto* done = std::get_if<core::JobDone>(&message.body)) {
    int lost = 0;
    for (std::size_t index = 0; index < hosts_->size(); ++index) lost += hosts_->is_up(index) ? 0 : 1;
    const auto& elastic = options_.setup.elastic;
    const bool saves = elastic && elastic->checkpoints.every > 0 && done->save_state;
    if (saves) hosts_->tell_membership({message.incarnation, *done, core::kEveryNode});
    end_job(agent_, *done, options_.app, options_.quiet, lost, options_.known.resume,
            saves ? kLastSave : core::Duration());
  } else if (const auto* lost = std::get_if<core::NodeLost>(&message.body)) {
    hosts_->give_up(lost->node, {core::Code::kPeerLost, lost->why});
  } else if (!agent_.ending() || !std::holds_alternative<core::Start>(message.body)) {
    if (keeps_checkpoints()) trained_.hear(message.body, agent_.ending());
    if (message.node == core::kEveryNode)
      hosts_->tell_membership(message);
    else
      hosts_->tell_membership(message.node, message);
  }
}

void ElasticHub::on_agent_message(core::NodeId node, const core::Message& message) {
  const auto refuse = [&](std::string_view what) {
    const auto index = hosts_->index_of(node);
    hosts_->give_up(node, core::invalid_argument(fmt::format("host {}: its agent said {}",
                                                             index ? hosts_->name(*index) : "?", what)));
  };
  if (!membership::is_agent_message(message.body)) return refuse("what only others may say");
  trained_.hear(message.body, agent_.ending());
  if (coordinator_ && !coordinator_->send({message.incarnation, message.body, node}))
    refuse("more than a message may hold");
}

void ElasticHub::on_notice(std::size_t index, const node::HostNotice& notice) {
  const auto guest = guests_.find(index);
  const bool granted = guest != guests_.end() && guest->second.grace > core::Duration::zero();
  const core::Duration usual = granted ? guest->second.grace : options_.notice_grace;
  const bool said = notice.within_ms != node::HostNotice::kNotSaid;
  const core::Duration within = said ? std::chrono::milliseconds(notice.within_ms) : usual;
  if (notice.kind == node::HostNotice::Kind::kOver) return unpark(index, notice.why);
  if (notice.kind == node::HostNotice::Kind::kSuspended) {
    park(index, within, notice.why);
  } else {
    give_back(index, within, notice.why);
  }
  end_without_hosts(within);
}

// Whoever takes the last host takes the job: its members have nobody to leave their state to.
void ElasticHub::end_without_hosts(core::Duration within) {
  for (std::size_t index = 0; index < hosts_->size(); ++index) {
    if (hosts_->is_up(index) && !leaving(index)) return;
  }
  if (!agent_.ending()) say("no host is left: the job ends");
  agent_.on_notice(within);
}

// The whole job ends: nobody comes any more who could take the state of the last members.
void ElasticHub::on_notice(core::TimePoint) {
  for (std::size_t index = 0; index < hosts_->size(); ++index) {
    const core::NodeUp now = news_of(index);
    if (hosts_->is_up(index)) tell_coordinator(core::NodeUp{now.node, now.name, 0}, now.node);
  }
}

void ElasticHub::on_lost(std::size_t index, const core::Status& why) {
  trained_.lose(hosts_->id(index), hosts_->name(index), why);
  if (!agent_.ending()) {
    if (awaited_.erase(index) > 0) {  // the coordinator does not know of it
      say(why.message());
      return leaving(index) ? on_left(index, "is lost") : bring_back_later(index);
    }
    const bool was_in = in_job_.erase(index) > 0;
    if (!was_in) tell_why_it_does_not_come(index, why.message());
    const core::NodeLost lost{hosts_->id(index), why.message()};
    if (coordinator_ && coordinator_->open())
      tell_coordinator(lost, lost.node);
    else
      untold_.push_back(lost);
    if (parked(index)) guests_.at(index).timer.cancel();
    if (leaving(index) && !parked(index))
      on_left(index, "is lost");
    else
      bring_back_later(index);
    if (const auto back = returns_.find(index); was_in && back != returns_.end()) back->second.said.emplace();
  }
  agent_.look_whether_over();
}

// The coordinator knows nothing of an agent that was not told to set up the job; it is tried again and again,
// and each reason said once. Those of the start have been said.
void ElasticHub::tell_why_it_does_not_come(std::size_t index, const std::string& why) {
  const auto guest = guests_.find(index);
  if (const auto back = returns_.find(index); guest == guests_.end() && back != returns_.end()) {
    std::optional<std::set<std::string>>& said = back->second.said;
    if (said && said->insert(why).second) say(fmt::format("{}; it is tried again", why));
    return;
  }
  if (guest == guests_.end() || !guest->second.grant || std::exchange(guest->second.failure, why) == why)
    return;
  say(why);
  lease_server_.tell(*guest->second.grant, why);
}

// The jobs that gave hosts have nothing left to wait for.
void ElasticHub::finish(const std::function<void()>& then) {
  hosts_->finish([this, then] {
    for (const auto& [index, guest] : guests_) {
      if (guest.grant) lease_server_.end(*guest.grant, "the job is over");
    }
    for (const auto& [index, part] : parts_) {
      if (part.grant) lease_server_.end(*part.grant, "the job is over");
    }
    then();
  });
}

void ElasticHub::bring_back_later(std::size_t index) {
  Return& back = returns_.try_emplace(index, agent_.loop()).first->second;
  const core::TimePoint came = std::exchange(back.came, core::TimePoint());
  if (came != core::TimePoint() && core::SystemClock().now() - came > kWasBack) back.delay = {};
  back.delay = std::clamp<core::Duration>(2 * back.delay, kFirstReturn, kLastReturn);
  back.timer.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(back.delay));
  back.timer.async_wait([this, index](const boost::system::error_code& error) {
    if (!error && !agent_.ending() && (!leaving(index) || parked(index))) hosts_->bring_back(index);
  });
}

bool ElasticHub::leaving(std::size_t index) const {
  const auto guest = guests_.find(index);
  return guest != guests_.end() && guest->second.leaving;
}
bool ElasticHub::parked(std::size_t index) const {
  const auto guest = guests_.find(index);
  return guest != guests_.end() && guest->second.parked;
}
bool ElasticHub::lent(std::size_t index) const {
  const auto guest = guests_.find(index);
  return guest != guests_.end() && guest->second.lent;
}

// One that has not left.
std::optional<std::size_t> ElasticHub::find(const std::string& host) const {
  for (std::size_t index = 0; index < hosts_->size(); ++index) {
    const auto guest = guests_.find(index);
    if (hosts_->name(index) == host && (guest == guests_.end() || !guest->second.left)) return index;
  }
  return std::nullopt;
}

void ElasticHub::add(const launcher::HostRequest& host, node::HostAccess way) {
  options_.slots.push_back(host.slots);
  options_.granted.push_back(host);
  hosts_->add({host.name, host.here, host.user, std::move(way)});
}

// The coordinator sees a host without slots: its members leave at the end of their step, and no others come.
void ElasticHub::give_back(std::size_t index, core::Duration within, const std::string& why) {
  if (hurry(index, within)) return;
  say(fmt::format("host {} is wanted back within {:g} s ({})", hosts_->name(index),
                  std::chrono::duration<double>(within).count(), why));
  vacate(index, within);
}

// True: it is on its way out, or has left. A further notice can only leave less time.
bool ElasticHub::hurry(std::size_t index, core::Duration within) {
  const auto found = guests_.find(index);
  if (found == guests_.end() || !(found->second.leaving || found->second.left)) return false;
  Guest& guest = found->second;
  const core::TimePoint deadline = core::SystemClock().now() + within;
  if (!guest.left && deadline < guest.deadline) {
    say(fmt::format("host {} is wanted back sooner, within {:g} s", hosts_->name(index),
                    std::chrono::duration<double>(within).count()));
    guest.deadline = deadline;
  }
  return !guest.parked;
}

// Its members leave as on any notice; its agent stays, to hear when the suspension is over.
// One that is lost meanwhile comes without slots, and its new agent knows who is to say that it is over.
void ElasticHub::park(std::size_t index, core::Duration within, const std::string& source) {
  if (hurry(index, within)) return;
  if (!leaving(index)) {
    guests_.try_emplace(index, agent_.loop()).first->second.parked = true;
    give_back(index, within, "suspend of " + source);
  }
  auto& sources = guests_.at(index).suspended_by;
  if (sources.size() < kMostSources) sources.insert(source);
}

void ElasticHub::unpark(std::size_t index, const std::string& why) {
  const auto guest = guests_.find(index);
  if (guest == guests_.end() || !guest->second.parked) return;
  guest->second.parked = guest->second.leaving = false;
  guest->second.suspended_by.clear();
  guest->second.timer.cancel();
  say(fmt::format("host {} may be used again ({})", hosts_->name(index), why));
  if (hosts_->is_up(index)) tell_coordinator(news_of(index), hosts_->id(index));
}

void ElasticHub::vacate(std::size_t index, core::Duration within) {
  Guest& guest = guests_.try_emplace(index, agent_.loop()).first->second;
  if (guest.left || agent_.ending()) return;
  if (guest.leaving && !guest.parked) return;
  guest.parked = guest.parked && !guest.leaving;  // what was suspended goes
  const core::TimePoint deadline = core::SystemClock().now() + within;
  guest.deadline = guest.leaving ? std::min(guest.deadline, deadline) : deadline;
  guest.leaving = true;
  if (const auto back = returns_.find(index); back != returns_.end()) back->second.timer.cancel();
  if (!hosts_->is_up(index)) return on_left(index, "is given back");
  tell_coordinator(news_of(index), hosts_->id(index));
  look_whether_empty(index);
}

void ElasticHub::look_whether_empty(std::size_t index) {
  Guest& guest = guests_.at(index);
  guest.timer.expires_after(kLook);
  guest.timer.async_wait([this, index](const boost::system::error_code& error) {
    const Guest& guest = guests_.at(index);
    if (error || guest.left || agent_.ending()) return;
    if (!guest.leaving || !launcher::is_due(guest.timer)) return;
    if (hosts_->members(index) == 0) return guest.parked ? void() : hosts_->dismiss(index);
    if (core::SystemClock().now() < guest.deadline) return look_whether_empty(index);
    hosts_->give_up(hosts_->id(index), {core::Code::kDeadlineExceeded,
                                        fmt::format("host {}: its time is over, with {} members on it",
                                                    hosts_->name(index), hosts_->members(index))});
  });
}

void ElasticHub::on_left(std::size_t index, const std::string& how) {
  Guest& guest = guests_.try_emplace(index, agent_.loop()).first->second;
  if (std::exchange(guest.left, true)) return;
  guest.timer.cancel();
  tell_coordinator(core::NodeLost{hosts_->id(index), fmt::format("host {} {}", hosts_->name(index), how)},
                   hosts_->id(index));
  if (guest.grant && all_left(*guest.grant)) lease_server_.end(*guest.grant, "the hosts are free");
  if (guest.returning && !agent_.ending()) return_host(index);
}

}  // namespace regroup::cmd
