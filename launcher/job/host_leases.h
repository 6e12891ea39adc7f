// Hosts of an elastic job that a client of its LeaseServer has offered, or demands back.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launcher/lease/lease_server.h"

namespace regroup::job {

// A host is in here from its offer, or from the demand, until it has left the job. Pure.
class HostLeases {
 public:
  struct Lease {
    lease::GrantId client = 0;
    base::Duration grace{};  // from a notice to the loss of the host; 0: not known
  };
  void offer(std::size_t host, const Lease& lease) { hosts_[host].lease = lease; }
  // The allocator demands a host of the job's own allocation; `client` waits until it is free.
  void demand(std::size_t host, lease::GrantId client) { hosts_[host].lease.client = client; }

  // nullptr: the host is not leased. The pointer is valid until the next change.
  [[nodiscard]] const Lease* find(std::size_t host) const;
  [[nodiscard]] std::optional<lease::GrantId> client(std::size_t host) const;
  // The hosts of that client, in ascending order.
  [[nodiscard]] std::vector<std::size_t> hosts_of(lease::GrantId client) const;
  [[nodiscard]] std::set<lease::GrantId> clients() const;

  // The host has left the job. Returns the client that waited for it, if there is one.
  std::optional<lease::GrantId> leave(std::size_t host);

  // Whether to tell the client that the agent of a host does not start for the reason `why`: if it
  // was not the last reason too.
  [[nodiscard]] bool is_news(std::size_t host, const std::string& why);

  // A client that offers hosts with a token may reconnect.
  void set_token(const std::string& token, lease::GrantId client) { tokens_[token] = client; }
  // The connection of that client is lost. Returns how long the job may keep its hosts: their grace
  // if it may reconnect, in which time it does, else kNoGrace.
  [[nodiscard]] base::Duration grace_without(lease::GrantId client) const;
  // The client with that token is `now`, which takes over all hosts. Returns what it was before;
  // nullopt: the token is unknown.
  [[nodiscard]] std::optional<lease::GrantId> reconnect(const std::string& token,
                                                        lease::GrantId now);

  static constexpr base::Duration kNoGrace = std::chrono::seconds(2);

 private:
  struct Host {
    Lease lease;
    std::string failure = {};  // the last reason why its agent did not start
  };
  std::map<std::size_t, Host> hosts_;
  std::map<std::string, lease::GrantId> tokens_;
};

}  // namespace regroup::job
