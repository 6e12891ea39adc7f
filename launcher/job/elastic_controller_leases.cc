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
namespace {

// After `regroup join` is gone for good.
constexpr base::Duration kNoGrace = std::chrono::seconds(2);

}  // namespace

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
  if (!offer.token.empty()) tokens_[offer.token] = id;
  std::uint32_t slots = 0;
  for (const spec::HostRequest& host : offer.grant.hosts) {
    // Before add(), which may report a failure at once.
    HostState& state = host_states_.try_emplace(hosts_->size(), agent_.loop()).first->second;
    state.grant = id;
    state.grace = offer.grace;
    state.leased = !asked_for;
    slots += host.slots;
    offer.starts ? add(host, access_through(id)) : add(host, offer.grant);
  }
  const std::string what =
      fmt::format("{} grants {} with {}", offer.grant.by,
                  base::counted(offer.grant.hosts.size(), "host"), slots_text(slots));
  if (!options_.quiet) agent_.say(what);
  lease_server_.tell(id, what);
  if (options_.scaler && size_ > 0) options_.scaler->cancel_beyond(missing());
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
  std::vector<std::size_t> all;
  for (const auto& [index, state] : host_states_) {
    if (state.grant == id) all.push_back(index);
  }
  for (const std::size_t index : all) give_back(index, within, why);
  if (!all.empty()) end_without_hosts(within);
}

// A `regroup join` with a token holds its hosts for the grace of its offer and reconnects within
// that time.
void ElasticController::on_gone(lease::GrantId id) {
  const bool returns =
      std::ranges::any_of(tokens_, [id](const auto& each) { return each.second == id; });
  base::Duration within = kNoGrace;
  for (const auto& [index, state] : host_states_) {
    if (returns && state.grant == id) within = std::max(within, state.grace);
  }
  revoke(id, within, "the connection to `regroup join` is lost");
}

base::Status ElasticController::on_reconnect(lease::GrantId id,
                                             const lease::LeaseReconnect& reconnect) {
  const auto known = tokens_.find(reconnect.token);
  if (known == tokens_.end()) return base::not_found("this job has none of these hosts");
  const lease::GrantId before = std::exchange(known->second, id);
  lease_server_.move_joiner(before, id);
  for (auto& [index, state] : host_states_) {
    if (state.grant == before) state.grant = id;
  }
  if (all_left(id)) {
    lease_server_.end(id, "the hosts are free");
  } else {
    revoke(id, reconnect.revoke.within, reconnect.revoke.why);
  }
  return {};
}

bool ElasticController::all_left(lease::GrantId id) const {
  const auto of_it = [id](const auto& part) { return part.second.grant == id; };
  if (std::ranges::any_of(reclaims_, of_it)) return false;
  return std::ranges::all_of(
      host_states_, [id](const auto& each) { return each.second.grant != id || each.second.left; });
}

// A draining host that is named again is added again after it has left.
void ElasticController::follow(const std::vector<spec::HostRequest>& named,
                               const spec::Grant& way) {
  if (agent_.ending()) return;
  std::set<std::string> there;
  for (std::size_t index = 0; index < hosts_->size(); ++index) {
    const auto state = host_states_.find(index);
    if (state != host_states_.end() && (state->second.left || state->second.grant)) continue;
    there.insert(hosts_->name(index));
    const auto same = std::ranges::find(named, hosts_->name(index), &spec::HostRequest::name);
    if (same == named.end()) {
      give_back(index, options_.notice_grace, "no longer listed");
    } else if (options_.slots.at(index) != same->slots) {
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
