// What a client says becomes a change of ElasticHosts; what follows from it is said to the client
// that waits for it. A lease ends when its hosts and slots are free, and not before.
#include "launcher/job/host_providers.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "base/printable.h"
#include "launcher/lease/leased_host_spawner.h"

namespace regroup::job {
namespace {

constexpr std::chrono::milliseconds kIdlePoll{200};    // between checks for idle hosts
constexpr std::chrono::milliseconds kReclaimPoll{50};  // between checks for free slots

agent::HostAccess access_to(const spec::HostRequest& host, const spec::Grant& way) {
  return {way.before, way.after, host.address};
}

}  // namespace

HostProviders::HostProviders(boost::asio::io_context& loop, ElasticHosts& hosts, Options options,
                             Events events)
    : loop_(loop),
      hosts_(hosts),
      links_(hosts.links()),
      options_(std::move(options)),
      events_(std::move(events)),
      timers_(loop),
      idle_timer_(loop),
      lease_server_(loop, lease_events()) {}

lease::LeaseServer::Events HostProviders::lease_events() {
  return {.offered = [this](lease::GrantId id,
                            const lease::LeaseOffer& offer) { return on_offer(id, offer); },
          .revoked = [this](lease::GrantId id,
                            const lease::LeaseRevoke& what) { revoke(id, what.within, what.why); },
          .gone =
              [this](lease::GrantId id) {
                revoke(id, leases_.grace_without(id), "the connection to `regroup join` is lost");
              },
          .wanted = [this](lease::GrantId id,
                           const lease::LeaseRevoke& what) { return on_wanted(id, what); },
          .resized = [this](lease::GrantId id,
                            const lease::Resized& what) { on_resized(id, what.members); },
          .reconnected =
              [this](lease::GrantId id, const lease::LeaseReconnect& reconnect) {
                return on_reconnect(id, reconnect);
              }};
}

base::Status HostProviders::start(const std::string& socket) {
  if (options_.scaler) options_.scaler->listen(events_.said);
  return socket.empty() ? base::Status() : lease_server_.start(socket);
}

void HostProviders::finish() {
  for (const auto& clients : {leases_.clients(), reclaims_.clients()}) {
    for (const lease::GrantId id : clients) lease_server_.end(id, "the job is over");
  }
}

std::optional<base::Duration> HostProviders::grace(std::size_t host) const {
  const HostLeases::Lease* lease = leases_.find(host);
  if (lease == nullptr || lease->grace <= base::Duration::zero()) return std::nullopt;
  return lease->grace;
}

bool HostProviders::not_started(std::size_t host, const std::string& why) {
  const auto client = leases_.client(host);
  if (client && leases_.is_news(host, why)) {
    events_.said(why);
    lease_server_.tell(*client, why);
  }
  return client.has_value();
}

void HostProviders::left(std::size_t host, HostStage before) {
  if (const auto client = leases_.leave(host)) end_if_free(*client, "the hosts are free");
  if (before == HostStage::kReturning && !events_.ending()) return_host(host);
}

base::Status HostProviders::on_offer(lease::GrantId id, const lease::LeaseOffer& offer) {
  if (events_.ending()) return base::unavailable("the job is over");
  if (offer.own) return on_growth(id, offer);
  const bool asked_for = options_.scaler && options_.scaler->asked_for(offer.request);
  if (options_.scaler && !options_.scaler->arrived(offer.request)) {
    lease_server_.end(id, "these hosts are no longer needed");
    return {};
  }
  for (const spec::HostRequest& host : offer.grant.hosts) {
    if (hosts_.find(host.name))
      return base::invalid_argument(fmt::format("host {} is already part of this job", host.name));
  }
  if (!offer.token.empty()) leases_.set_token(offer.token, id);
  std::uint32_t slots = 0;
  for (const spec::HostRequest& host : offer.grant.hosts) {
    // Before add(), which may report a failure at once.
    leases_.offer(links_.size(), {.client = id, .grace = offer.grace});
    slots += host.slots;
    hosts_.add(host, offer.starts ? access_through(id) : access_to(host, offer.grant), !asked_for);
  }
  const std::string what =
      fmt::format("{} grants {} with {}", offer.grant.by,
                  base::counted(offer.grant.hosts.size(), "host"), slots_text(slots));
  events_.said(what);
  lease_server_.tell(id, what);
  if (options_.scaler && size_ > 0) options_.scaler->cancel_beyond(slots_lacked(uses(), size_));
  return {};
}

// The start commands of most allocators work only in their own job, so the `regroup join` that
// leases the hosts starts the agents there.
agent::HostAccess HostProviders::access_through(lease::GrantId id) {
  return {{"regroup join", std::to_string(id)},
          {},
          "",
          [this, joiner = lease_server_.joiner(id)](
              std::shared_ptr<const transport::JobSecret> secret, agent::SpawnEvents events) {
            return std::make_unique<lease::LeasedHostSpawner>(loop_, std::move(secret),
                                                              std::move(events), joiner);
          }};
}

void HostProviders::revoke(lease::GrantId id, base::Duration within, const std::string& why) {
  const std::vector<std::size_t> hosts = leases_.hosts_of(id);
  for (const std::size_t host : hosts) hosts_.demand(host, within, why);
  if (!hosts.empty()) events_.demanded(within);
}

base::Status HostProviders::on_reconnect(lease::GrantId id,
                                         const lease::LeaseReconnect& reconnect) {
  const auto before = leases_.reconnect(reconnect.token, id);
  if (!before) return base::not_found("this job has none of these hosts");
  lease_server_.move_joiner(*before, id);
  end_if_free(id, "the hosts are free");
  revoke(id, reconnect.revoke.within, reconnect.revoke.why);
  return {};
}

// Ends the lease of a client that waits for neither hosts nor slots any more.
void HostProviders::end_if_free(lease::GrantId id, const std::string& text) {
  if (leases_.hosts_of(id).empty() && !reclaims_.clients().contains(id))
    lease_server_.end(id, text);
}

void HostProviders::follow(const std::vector<spec::HostRequest>& named, const spec::Grant& way) {
  if (events_.ending()) return;
  std::set<std::string> there;
  for (std::size_t host = 0; host < links_.size(); ++host) {
    if (hosts_.stage(host) == HostStage::kLeft || leases_.client(host)) continue;
    there.insert(links_.name(host));
    const auto same = std::ranges::find(named, links_.name(host), &spec::HostRequest::name);
    if (same == named.end()) {
      hosts_.demand(host, options_.notice_grace, "no longer listed");
    } else if (hosts_.given_slots(host) != same->slots) {
      hosts_.set_slots(host, same->slots);
    }
  }
  for (const spec::HostRequest& host : named) {
    if (there.contains(host.name)) continue;
    events_.said(fmt::format("host {} is listed: starting an agent there", host.name));
    hosts_.add(host, access_to(host, way));
  }
}

// The allocation of the job has grown by new hosts, or by slots on hosts of the job.
base::Status HostProviders::on_growth(lease::GrantId id, const lease::LeaseOffer& offer) {
  if (!options_.scaler) return base::invalid_argument("the allocation of this job cannot grow");
  std::uint32_t slots = 0;
  for (const spec::HostRequest& host : offer.grant.hosts) {
    if (const auto index = hosts_.find(host.name); index && !hosts_.stays(*index))
      return base::unavailable(fmt::format("host {} is being returned", host.name));
    slots += host.slots;
  }
  options_.scaler->grow(offer.grant.hosts);
  for (const spec::HostRequest& host : offer.grant.hosts) {
    const auto index = hosts_.find(host.name);
    if (!index) {
      hosts_.add(host, access_to(host, options_.scaler->way()));
    } else {
      hosts_.set_slots(*index, hosts_.given_slots(*index) + host.slots, reclaims_.has(*index));
    }
  }
  const std::string what =
      fmt::format("{} grants {} more", options_.scaler->title(), slots_text(slots));
  events_.said(what);
  lease_server_.end(id, what);
  return {};
}

base::Status HostProviders::check_wanted(const lease::LeaseRevoke& what) const {
  if (events_.ending()) return base::unavailable("the job is over");
  if (what.hosts.empty()) return base::invalid_argument("LeaseRevoke: expected at least one host");
  std::set<std::string> named;
  for (const spec::HostRequest& host : what.hosts) {
    if (!named.insert(host.name).second)
      return base::invalid_argument(fmt::format("LeaseRevoke: host {} is listed twice", host.name));
    const auto index = hosts_.find(host.name);
    const bool part = index && host.slots < hosts_.given_slots(*index);
    if (!index || !options_.scaler || !options_.scaler->has(host.name) ||
        (!part && !options_.scaler->takes_back(host.name)))
      return base::invalid_argument(fmt::format("host {}: this job cannot return it", host.name));
    if (!hosts_.stays(*index) || reclaims_.has(*index))
      return base::unavailable(fmt::format("host {} is already being returned", host.name));
  }
  return {};
}

// The allocator reclaims hosts of the job's own allocation, or some of their slots.
base::Status HostProviders::on_wanted(lease::GrantId id, const lease::LeaseRevoke& what) {
  if (base::Status status = check_wanted(what); !status.ok()) return status;
  for (const spec::HostRequest& host : what.hosts) {
    const std::size_t index = *hosts_.find(host.name);
    if (host.slots < hosts_.given_slots(index)) {
      events_.said(fmt::format("host {}: {} must be returned within {:g} s ({})", host.name,
                               slots_text(host.slots),
                               std::chrono::duration<double>(what.within).count(), what.why));
      reclaim_slots(index, host.slots, id, what.within);
      continue;
    }
    leases_.demand(index, id);
    options_.scaler->drop(host.name);
  }
  revoke(id, what.within, what.why);
  return {};
}

// The newest members of the host leave as on a notice, as many as do not fit any more.
void HostProviders::reclaim_slots(std::size_t host, std::uint32_t slots,
                                  std::optional<lease::GrantId> id, base::Duration within) {
  reclaims_.begin(host, {id, slots, base::SystemClock().now() + within});
  hosts_.set_slots(host, hosts_.given_slots(host) - slots, true);
  poll_reclaim(host);
}

void HostProviders::poll_reclaim(std::size_t host) {
  timers_.set(HostTimers::Kind::kReclaim, host, kReclaimPoll, [this, host] {
    if (events_.ending()) return;
    switch (reclaims_.step(host, links_.members(host), hosts_.given_slots(host),
                           base::SystemClock().now())) {
      case SlotReclaims::Step::kWait:
        return poll_reclaim(host);
      case SlotReclaims::Step::kReport:
        return report_slots(host);
      case SlotReclaims::Step::kReturn:
        return return_slots(host);
      case SlotReclaims::Step::kKeep:
        return keep_slots(host);
    }
  });
}

// The slots are free: the allocator that has demanded them waits for that.
void HostProviders::report_slots(std::size_t host) {
  const SlotReclaim reclaim = reclaims_.end(host);
  hosts_.set_slots(host, hosts_.given_slots(host));  // for good
  options_.scaler->lessen(links_.name(host), reclaim.slots);
  events_.said(fmt::format("host {}: {} returned", links_.name(host), slots_text(reclaim.slots)));
  end_if_free(*reclaim.client, "the slots are free");
}

// Offers the free slots to the allocator; the job uses them again if it refuses.
void HostProviders::return_slots(std::size_t host) {
  const std::uint32_t slots = reclaims_.at(host).slots;
  options_.scaler->give_back(
      links_.name(host), slots, [this, host, slots](const base::Result<std::string>& printed) {
        if (events_.ending()) return;
        reclaims_.end(host);
        hosts_.set_slots(host, hosts_.given_slots(host) + (printed.ok() ? 0 : slots));
        const std::string what = fmt::format("{} of host {}", slots_text(slots), links_.name(host));
        if (printed.ok())
          return events_.said(fmt::format("{}: {} returned", options_.scaler->title(), what));
        events_.said(fmt::format("{} stay{} in the job: {}", what, slots == 1 ? "s" : "",
                                 printed.status().message()));
      });
}

// The deadline has passed: the job keeps the slots, and the allocator gets an error.
void HostProviders::keep_slots(std::size_t host) {
  const SlotReclaim reclaim = reclaims_.end(host);
  hosts_.set_slots(host, hosts_.given_slots(host) + reclaim.slots);
  const std::string what = fmt::format("host {}: its members did not leave {} in time",
                                       links_.name(host), slots_text(reclaim.slots));
  reclaim.client ? lease_server_.end(*reclaim.client, what, false) : events_.said(what);
}

// The coordinator has accepted the new size. Requests missing slots, cancels requests that are not
// needed any more, and returns hosts without members to the allocator or joiner that provided them.
void HostProviders::on_resized(lease::GrantId id, std::uint32_t members) {
  wanted_ = 0;
  idle_timer_.cancel();
  if (events_.ending()) return lease_server_.end(id, "");
  size_ = members + options_.spares;
  const std::uint32_t lacked = slots_lacked(uses(), size_);
  if (lacked == 0) {
    wanted_ = size_;
    poll_idle();
  }
  ask_for(lacked, id);
}

void HostProviders::ask_for(std::uint32_t slots, lease::GrantId id) {
  if (!options_.scaler || !options_.scaler->grows()) return lease_server_.end(id, "");
  std::vector<std::string> names;
  for (std::size_t host = 0; host < links_.size(); ++host) {
    if (hosts_.find(links_.name(host)) == host) names.push_back(links_.name(host));
  }
  options_.scaler->ask_for(
      slots, std::move(names),
      [this, id, slots](std::uint32_t more, const base::Result<std::string>& said) {
        const char* title = options_.scaler->title();
        if (slots == 0) return lease_server_.end(id, "");
        if (more == 0)
          return lease_server_.end(id, fmt::format("{}: {} requested already", title,
                                                   slots_text(options_.scaler->expected())));
        const std::string what =
            fmt::format("{}: {} {} more{}", title, said.ok() ? "requested" : "could not request",
                        slots_text(more), said.ok() ? "" : ": " + said.status().message());
        events_.said(what);
        lease_server_.end(id, what, said.ok());
      });
}

std::vector<HostUse> HostProviders::uses() const {
  std::vector<HostUse> uses;
  for (std::size_t host = 0; host < links_.size(); ++host) {
    if (hosts_.stage(host) == HostStage::kLeft) continue;
    HostUse& use = uses.emplace_back();
    use.host = host;
    if (!links_.is_up(host)) use.state = HostUse::State::kLost;
    if (!hosts_.stays(host)) use.state = HostUse::State::kDrains;
    use.slots = hosts_.node_up(host).slots;
    use.given = hosts_.given_slots(host);
    use.members = links_.members(host);
    use.reclaimed = reclaims_.has(host);
    use.client = leases_.client(host);
    const std::string& name = links_.name(host);
    use.returnable = options_.scaler && options_.scaler->takes_back(name);
    use.divisible = options_.scaler && options_.scaler->takes_part(name);
  }
  return uses;
}

// Returns what is not needed as soon as no more members run than are wanted.
void HostProviders::poll_idle() {
  idle_timer_.expires_after(kIdlePoll);
  idle_timer_.async_wait([this](const boost::system::error_code& error) {
    if (error || events_.ending() || wanted_ == 0) return;
    if (links_.running() > wanted_) return poll_idle();
    release_idle();
    wanted_ = 0;
  });
}

// To the allocator, or to the clients that have offered the hosts.
void HostProviders::release_idle() {
  const IdleHosts idle = find_idle(uses(), wanted_);
  for (const std::size_t host : idle.whole)
    hosts_.return_idle(host, options_.notice_grace, !leases_.client(host));
  for (const auto& [host, slots] : idle.slots) {
    events_.said(fmt::format("host {}: {} no longer needed", links_.name(host), slots_text(slots)));
    reclaim_slots(host, slots, std::nullopt, options_.notice_grace);
  }
}

// The job uses the host again if the allocator refuses it.
void HostProviders::return_host(std::size_t index) {
  const spec::HostRequest host{.name = links_.name(index), .slots = hosts_.given_slots(index)};
  options_.scaler->give_back(host.name, 0, [this, host](const base::Result<std::string>& printed) {
    if (events_.ending()) return;
    if (printed.ok())
      return events_.said(fmt::format("{}: host {} returned", options_.scaler->title(), host.name));
    events_.said(
        fmt::format("host {} stays in the job: {}", host.name, printed.status().message()));
    hosts_.add(host, access_to(host, options_.scaler->way()));
  });
}

}  // namespace regroup::job
