// What a client says becomes a change of ElasticHosts; what follows from it is said to the client
// that waits for it. A lease ends when its hosts and slots are free, and not before.
#include "launcher/job/host_providers.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/printable.h"
#include "base/status.h"
#include "launcher/lease/leased_host_spawner.h"

namespace regroup::job {

HostProviders::HostProviders(boost::asio::io_context& loop, ElasticHosts& hosts,
                             OwnAllocation::Options allocation, Events events)
    : loop_(loop),
      hosts_(hosts),
      links_(hosts.links()),
      notice_grace_(allocation.notice_grace),
      events_(std::move(events)),
      allocation_(loop, hosts, leases_, std::move(allocation), allocation_events()),
      lease_server_(loop, lease_events()) {}

OwnAllocation::Events HostProviders::allocation_events() {
  return {.ending = events_.ending,
          .said = events_.said,
          .answered = [this](lease::GrantId id, const std::string& text,
                             bool ok) { lease_server_.end(id, text, ok); },
          .freed = [this](lease::GrantId id) { end_if_free(id, "the slots are free"); }};
}

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
                            const lease::Resized& what) { allocation_.resize(id, what.members); },
          .reconnected =
              [this](lease::GrantId id, const lease::LeaseReconnect& reconnect) {
                return on_reconnect(id, reconnect);
              }};
}

base::Status HostProviders::start(const std::string& socket) {
  allocation_.start();
  return socket.empty() ? base::Status() : lease_server_.start(socket);
}

void HostProviders::finish() {
  for (const auto& clients : {leases_.clients(), allocation_.clients()}) {
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
  if (before == HostStage::kReturning && !events_.ending()) allocation_.return_host(host);
}

base::Status HostProviders::on_offer(lease::GrantId id, const lease::LeaseOffer& offer) {
  if (events_.ending()) return base::unavailable("the job is over");
  if (offer.own) {
    REGROUP_ASSIGN_OR_RETURN(const std::string what, allocation_.grow(offer.grant.hosts));
    lease_server_.end(id, what);
    return {};
  }
  const auto origin = allocation_.arrive(offer.request);
  if (origin == OwnAllocation::Origin::kCancelled) {
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
    hosts_.add(host, offer.starts ? access_through(id) : access_to(host, offer.grant),
               origin == OwnAllocation::Origin::kOthers);
  }
  const std::string what =
      fmt::format("{} grants {} with {}", offer.grant.by,
                  base::counted(offer.grant.hosts.size(), "host"), slots_text(slots));
  events_.said(what);
  lease_server_.tell(id, what);
  allocation_.cancel_surplus();
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
  if (leases_.hosts_of(id).empty() && !allocation_.clients().contains(id))
    lease_server_.end(id, text);
}

// The allocator reclaims hosts of the job's own allocation, or some of their slots.
base::Status HostProviders::on_wanted(lease::GrantId id, const lease::LeaseRevoke& what) {
  if (events_.ending()) return base::unavailable("the job is over");
  REGROUP_ASSIGN_OR_RETURN(const std::vector<std::size_t> whole, allocation_.demand(id, what));
  for (const std::size_t host : whole) leases_.demand(host, id);
  revoke(id, what.within, what.why);
  return {};
}

void HostProviders::follow(const std::vector<spec::HostRequest>& named, const spec::Grant& way) {
  if (events_.ending()) return;
  std::set<std::string> there;
  for (std::size_t host = 0; host < links_.size(); ++host) {
    if (hosts_.stage(host) == HostStage::kLeft || leases_.client(host)) continue;
    there.insert(links_.name(host));
    const auto same = std::ranges::find(named, links_.name(host), &spec::HostRequest::name);
    if (same == named.end()) {
      hosts_.demand(host, notice_grace_, "no longer listed");
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

}  // namespace regroup::job
