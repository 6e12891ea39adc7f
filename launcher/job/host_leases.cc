// Which client has offered which host.
#include "launcher/job/host_leases.h"

#include <algorithm>
#include <utility>

namespace regroup::job {

const HostLeases::Lease* HostLeases::find(std::size_t host) const {
  const auto found = hosts_.find(host);
  return found == hosts_.end() ? nullptr : &found->second.lease;
}

std::optional<lease::GrantId> HostLeases::client(std::size_t host) const {
  const Lease* lease = find(host);
  return lease != nullptr ? std::optional(lease->client) : std::nullopt;
}

std::vector<std::size_t> HostLeases::hosts_of(lease::GrantId client) const {
  std::vector<std::size_t> hosts;
  for (const auto& [host, state] : hosts_) {
    if (state.lease.client == client) hosts.push_back(host);
  }
  return hosts;
}

std::set<lease::GrantId> HostLeases::clients() const {
  std::set<lease::GrantId> clients;
  for (const auto& [host, state] : hosts_) clients.insert(state.lease.client);
  return clients;
}

std::optional<lease::GrantId> HostLeases::leave(std::size_t host) {
  const auto left = hosts_.extract(host);
  return left.empty() ? std::nullopt : std::optional(left.mapped().lease.client);
}

bool HostLeases::is_news(std::size_t host, const std::string& why) {
  const auto found = hosts_.find(host);
  return found != hosts_.end() && std::exchange(found->second.failure, why) != why;
}

base::Duration HostLeases::grace_without(lease::GrantId client) const {
  const bool returns =
      std::ranges::any_of(tokens_, [client](const auto& each) { return each.second == client; });
  base::Duration grace = kNoGrace;
  for (const auto& [host, state] : hosts_) {
    if (returns && state.lease.client == client) grace = std::max(grace, state.lease.grace);
  }
  return grace;
}

std::optional<lease::GrantId> HostLeases::reconnect(const std::string& token, lease::GrantId now) {
  const auto known = tokens_.find(token);
  if (known == tokens_.end()) return std::nullopt;
  const lease::GrantId before = std::exchange(known->second, now);
  for (auto& [host, state] : hosts_) {
    if (state.lease.client == before) state.lease.client = now;
  }
  return before;
}

}  // namespace regroup::job
