// Performs what HostExits, AgentRestarts and HostSlots decide. A host is set up before the
// coordinator hears of it, and the coordinator hears that it has no slots before its members are
// waited for: so it sends no member to a host that leaves.
#include "launcher/job/elastic_hosts.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

namespace regroup::job {
namespace {

// Between checks whether a draining host has members left.
constexpr std::chrono::milliseconds kDrainPoll{50};

base::TimePoint now() { return base::SystemClock().now(); }

}  // namespace

agent::HostAccess access_to(const spec::HostRequest& host, const spec::Grant& way) {
  return {way.before, way.after, host.address};
}

ElasticHosts::ElasticHosts(boost::asio::io_context& loop, ElasticHostsOptions options,
                           agent::Hosts& links, Events events)
    : options_(std::move(options)),
      links_(links),
      events_(std::move(events)),
      slots_(options_.granted),
      timers_(loop) {}

void ElasticHosts::start() {
  for (std::size_t host = 0; host < links_.size(); ++host) begin(host);
}

// Sets up a host of the start. One that is not up yet is handled like a host that is added later.
void ElasticHosts::begin(std::size_t host) {
  if (links_.is_coming(host)) {
    restarts_.await(host);
  } else if (!links_.is_up(host)) {
    restart_later(host);
  } else if (const auto resources = options_.first_resources.find(host);
             resources != options_.first_resources.end()) {
    set_up(host, std::move(resources->second));
  } else if (options_.inventory) {
    came(host);
  } else {
    set_up(host, {});
  }
}

// Also of a host that was lost before: it may have other GPUs now.
void ElasticHosts::came(std::size_t host) {
  if (!options_.inventory) return join(host, {});
  links_.query_inventory(
      host, *options_.inventory,
      [this, host, id = links_.id(host)](const base::Result<std::string>& answer) {
        if (links_.id(host) != id || events_.ending()) return;
        auto resources = options_.resources_of(
            options_.granted.at(host),
            effective_slots(slots_.given(host), links_.facts(host).slots), answer);
        if (!resources.ok()) return links_.give_up(id, resources.status());
        join(host, std::move(*resources));
      });
}

void ElasticHosts::join(std::size_t host, std::vector<agent::SlotResources> resources) {
  set_up(host, std::move(resources));
  restarts_.came(host, now());
  events_.changed(node_up(host));
}

void ElasticHosts::set_up(std::size_t host, std::vector<agent::SlotResources> resources) {
  restarts_.set_up(host);
  slots_.set_resources(host, static_cast<std::uint32_t>(resources.size()));
  agent::Setup setup = options_.setup;
  if (setup.elastic) setup.elastic->slots = std::move(resources);
  setup.host = links_.id(host);
  setup.name = links_.name(host);
  setup.suspended_by = exits_.suspended_by(host);
  links_.set_up(host, setup, options_.app);
}

proto::NodeUp ElasticHosts::node_up(std::size_t host) const {
  proto::NodeUp up{.node = links_.id(host), .name = links_.name(host)};
  if (exits_.stays(host)) {
    up.slots = slots_.usable(host, links_.facts(host).slots);
    up.leased = slots_.leased(host);
    up.for_now = slots_.for_now(host);
  } else {
    up.for_now = exits_.suspended(host);
  }
  return up;
}

void ElasticHosts::lost(std::size_t host, const base::Status& why) {
  const AgentStage before = restarts_.lose(host);
  if (before == AgentStage::kAwaited) {  // the coordinator does not know this host
    events_.said(why.message());
  } else {
    if (before == AgentStage::kUnknown) report_failed_start(host, why.message());
    events_.lost({links_.id(host), why.message()});
  }
  timers_.cancel(HostTimers::Kind::kDrain, host);
  exits_.keeps_agent(host) ? restart_later(host) : leave(host, HostEvent::kLost);
}

// The coordinator cannot report it, since it does not know an agent before its setup.
void ElasticHosts::report_failed_start(std::size_t host, const std::string& why) {
  if (events_.not_started(host, why)) return;
  if (exits_.stays(host) && restarts_.is_news(host, why))
    events_.said(fmt::format("{}; trying again", why));
}

void ElasticHosts::restart_later(std::size_t host) {
  timers_.set(HostTimers::Kind::kRestart, host, restarts_.delay(host, now()), [this, host] {
    if (!events_.ending() && exits_.keeps_agent(host)) links_.bring_back(host);
  });
}

std::optional<std::size_t> ElasticHosts::find(const std::string& name) const {
  for (std::size_t host = 0; host < links_.size(); ++host) {
    if (links_.name(host) == name && !exits_.has_left(host)) return host;
  }
  return std::nullopt;
}

bool ElasticHosts::any_stays() const {
  for (std::size_t host = 0; host < links_.size(); ++host) {
    if (links_.is_up(host) && exits_.stays(host)) return true;
  }
  return false;
}

void ElasticHosts::add(const spec::HostRequest& host, agent::HostAccess way, bool leased) {
  slots_.add(host.slots, leased);
  options_.granted.push_back(host);
  links_.add({host.name, host.here, host.user, std::move(way)});
}

void ElasticHosts::set_slots(std::size_t host, std::uint32_t slots, bool for_now) {
  slots_.give(host, slots, for_now);
  if (links_.is_up(host)) events_.changed(node_up(host));
}

void ElasticHosts::demand(std::size_t host, base::Duration within, const std::string& why) {
  if (events_.ending()) return;
  const auto change = exits_.demand(host, now() + within);
  say_change(host, change, within, why);
  if (change.moved) drain(host);
}

// Keeps the agent, which hears when the suspension is over. If the agent is lost meanwhile the host
// comes back with 0 slots, and its new agent gets the sources whose notices must end first.
void ElasticHosts::suspend(std::size_t host, base::Duration within, const std::string& source) {
  if (events_.ending()) return;
  const auto change = exits_.suspend(host, now() + within, source);
  say_change(host, change, within, "suspend of " + source);
  if (change.moved) drain(host);
}

void ElasticHosts::resume(std::size_t host, const std::string& why) {
  if (!exits_.resume(host)) return;
  timers_.cancel(HostTimers::Kind::kDrain, host);
  events_.said(fmt::format("host {} may be used again ({})", links_.name(host), why));
  if (links_.is_up(host)) events_.changed(node_up(host));
}

void ElasticHosts::return_idle(std::size_t host, base::Duration within, bool to_allocator) {
  const base::TimePoint deadline = now() + within;
  const auto change =
      to_allocator ? exits_.return_idle(host, deadline) : exits_.demand(host, deadline);
  events_.said(fmt::format("host {} is no longer needed", links_.name(host)));
  if (change.moved) drain(host);
}

void ElasticHosts::say_change(std::size_t host, const HostExits::Change& change,
                              base::Duration within, const std::string& why) {
  const double seconds = std::chrono::duration<double>(within).count();
  const std::string& name = links_.name(host);
  if (change.sooner)
    events_.said(fmt::format("host {} must be returned sooner, within {:g} s", name, seconds));
  if (change.moved)
    events_.said(fmt::format("host {} must be returned within {:g} s ({})", name, seconds, why));
}

// The coordinator gets a host with 0 slots: its members leave at the end of their step, and none is
// added.
void ElasticHosts::drain(std::size_t host) {
  timers_.cancel(HostTimers::Kind::kRestart, host);
  if (!links_.is_up(host)) return leave(host, HostEvent::kEnded);
  events_.changed(node_up(host));
  poll_drained(host);
}

void ElasticHosts::poll_drained(std::size_t host) {
  timers_.set(HostTimers::Kind::kDrain, host, kDrainPoll, [this, host] {
    if (events_.ending()) return;
    const std::size_t members = links_.members(host);
    switch (exits_.step(host, members, now())) {
      case HostExits::Step::kNothing:
        return;
      case HostExits::Step::kWait:
        return poll_drained(host);
      case HostExits::Step::kDismiss:
        return links_.dismiss(host);
      case HostExits::Step::kGiveUp:
        return links_.give_up(links_.id(host),
                              {base::Code::kDeadlineExceeded,
                               fmt::format("host {}: {} of its members did not leave in time",
                                           links_.name(host), members)});
    }
  });
}

void ElasticHosts::leave(std::size_t host, HostEvent event) {
  const auto before = exits_.leave(host, event);
  if (!before) return;
  timers_.cancel(HostTimers::Kind::kDrain, host);
  events_.left(host, *before,
               fmt::format("host {} {}", links_.name(host),
                           event == HostEvent::kLost ? "is lost" : "was returned"));
}

}  // namespace regroup::job
