// How the controller adds hosts that `regroup join` leases to the job or that a discovery script
// names, and drains them when the lease is revoked or the script names them no more.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "base/printable.h"
#include "base/status.h"
#include "launcher/job/elastic_controller.h"
#include "launcher/lease/leased_host_spawner.h"

namespace regroup::job {

base::Status ElasticController::on_offer(lease::GrantId id, const lease::LeaseOffer& offer) {
  if (agent_.ending()) return base::unavailable("the job is over");
  if (offer.own) return on_growth(id, offer);
  const bool asked_for = options_.scaler && options_.scaler->asked_for(offer.request);
  if (options_.scaler && !options_.scaler->arrived(offer.request)) {
    lease_server_.end(id, "these hosts are no longer needed");
    return {};
  }
  for (const spec::HostRequest& host : offer.grant.hosts) {
    if (find(host.name))
      return base::invalid_argument(fmt::format("host {} is already part of this job", host.name));
  }
  if (!offer.token.empty()) leases_.set_token(offer.token, id);
  std::uint32_t slots = 0;
  for (const spec::HostRequest& host : offer.grant.hosts) {
    // Before add(), which may report a failure at once.
    leases_.offer(hosts_->size(), {.client = id, .grace = offer.grace});
    slots += host.slots;
    offer.starts ? add(host, access_through(id), !asked_for) : add(host, offer.grant, !asked_for);
  }
  const std::string what =
      fmt::format("{} grants {} with {}", offer.grant.by,
                  base::counted(offer.grant.hosts.size(), "host"), slots_text(slots));
  if (!options_.quiet) agent_.say(what);
  lease_server_.tell(id, what);
  if (options_.scaler && size_ > 0) options_.scaler->cancel_beyond(slots_lacked(uses(), size_));
  return {};
}

// The start commands of most allocators work only in their own job, so the `regroup join` that
// leases the hosts starts the agents there.
agent::HostAccess ElasticController::access_through(lease::GrantId id) {
  return {{"regroup join", std::to_string(id)},
          {},
          "",
          [this, joiner = lease_server_.joiner(id)](
              std::shared_ptr<const transport::JobSecret> secret, agent::SpawnEvents events) {
            return std::make_unique<lease::LeasedHostSpawner>(agent_.loop(), std::move(secret),
                                                              std::move(events), joiner);
          }};
}

void ElasticController::revoke(lease::GrantId id, base::Duration within, const std::string& why) {
  const std::vector<std::size_t> hosts = leases_.hosts_of(id);
  for (const std::size_t index : hosts) give_back(index, within, why);
  if (!hosts.empty()) end_without_hosts(within);
}

void ElasticController::on_gone(lease::GrantId id) {
  revoke(id, leases_.grace_without(id), "the connection to `regroup join` is lost");
}

base::Status ElasticController::on_reconnect(lease::GrantId id,
                                             const lease::LeaseReconnect& reconnect) {
  const auto before = leases_.reconnect(reconnect.token, id);
  if (!before) return base::not_found("this job has none of these hosts");
  lease_server_.move_joiner(*before, id);
  end_if_free(id, "the hosts are free");
  revoke(id, reconnect.revoke.within, reconnect.revoke.why);
  return {};
}

// Ends the lease of a client that waits for neither hosts nor slots any more.
void ElasticController::end_if_free(lease::GrantId id, const std::string& text) {
  if (leases_.hosts_of(id).empty() && !reclaims_.clients().contains(id))
    lease_server_.end(id, text);
}

// A draining host that is named again is added again after it has left.
void ElasticController::follow(const std::vector<spec::HostRequest>& named,
                               const spec::Grant& way) {
  if (agent_.ending()) return;
  std::set<std::string> there;
  for (std::size_t index = 0; index < hosts_->size(); ++index) {
    if (exits_.has_left(index) || leases_.client(index)) continue;
    there.insert(hosts_->name(index));
    const auto same = std::ranges::find(named, hosts_->name(index), &spec::HostRequest::name);
    if (same == named.end()) {
      give_back(index, options_.notice_grace, "no longer listed");
    } else if (slots_.given(index) != same->slots) {
      change_slots(index, same->slots);
    }
  }
  for (const spec::HostRequest& host : named) {
    if (there.contains(host.name)) continue;
    say(fmt::format("host {} is listed: starting an agent there", host.name));
    add(host, way);
  }
}

}  // namespace regroup::job
