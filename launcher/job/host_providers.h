// What provides the hosts of an elastic job: clients that lease hosts (`regroup join`), the job's
// own allocation, and a discovery script.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "launcher/job/elastic_hosts.h"
#include "launcher/job/host_leases.h"
#include "launcher/job/own_allocation.h"
#include "launcher/lease/lease_server.h"

namespace regroup::job {

// Used by the loop's thread.
class HostProviders {
 public:
  struct Events {
    std::function<bool()> ending;                  // the job is being ended
    std::function<void(const std::string&)> said;  // a sentence for the user
    // Hosts were demanded, to be free within that time, and may have been the last ones.
    std::function<void(base::Duration within)> demanded;
  };
  // `hosts` outlives this object. Its owner passes on what it reports: not_started(), left().
  HostProviders(boost::asio::io_context& loop, ElasticHosts& hosts,
                OwnAllocation::Options allocation, Events events);

  // Listens at the path `socket` for clients; "": for none.
  [[nodiscard]] base::Status start(const std::string& socket);
  // Makes `named` the hosts of the job, except for leased ones: adds missing hosts, drains the
  // others. A draining host that is named is added again after it has left.
  void follow(const std::vector<spec::HostRequest>& named, const spec::Grant& way);
  // From a notice to the loss of the host, if its provider has said so.
  [[nodiscard]] std::optional<base::Duration> grace(std::size_t host) const;
  // The agent of a host does not start. False: no client has leased the host. Else the client and
  // the user are told, unless they were told the same before.
  [[nodiscard]] bool not_started(std::size_t host, const std::string& why);
  // The host has left the job, from the stage `before`.
  void left(std::size_t host, HostStage before);
  // The job is over: ends all leases, for which `regroup join` waits.
  void finish();

 private:
  [[nodiscard]] OwnAllocation::Events allocation_events();
  [[nodiscard]] lease::LeaseServer::Events lease_events();
  [[nodiscard]] base::Status on_offer(lease::GrantId id, const lease::LeaseOffer& offer);
  [[nodiscard]] agent::HostAccess access_through(lease::GrantId id);
  void revoke(lease::GrantId id, base::Duration within, const std::string& why);
  [[nodiscard]] base::Status on_reconnect(lease::GrantId id,
                                          const lease::LeaseReconnect& reconnect);
  void end_if_free(lease::GrantId id, const std::string& text);

  [[nodiscard]] base::Status on_wanted(lease::GrantId id, const lease::LeaseRevoke& what);

  boost::asio::io_context& loop_;
  ElasticHosts& hosts_;
  const agent::Hosts& links_;
  const base::Duration notice_grace_;  // for a host that a script names no more
  const Events events_;
  HostLeases leases_;
  OwnAllocation allocation_;
  lease::LeaseServer lease_server_;
};

}  // namespace regroup::job
