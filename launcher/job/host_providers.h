// How an elastic job on several hosts grows and shrinks with what provides its hosts: clients that
// lease hosts (`regroup join`), the allocator of the job, and a discovery script.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "launcher/job/allocation_scaler.h"
#include "launcher/job/elastic_hosts.h"
#include "launcher/job/host_leases.h"
#include "launcher/job/host_timers.h"
#include "launcher/job/idle_hosts.h"
#include "launcher/job/slot_reclaims.h"
#include "launcher/lease/lease_server.h"

namespace regroup::job {

// Used by the loop's thread.
class HostProviders {
 public:
  struct Options {
    base::Duration notice_grace{};                  // for a host that the job returns by itself
    std::shared_ptr<AllocationScaler> scaler = {};  // none: the allocation cannot change
    std::uint32_t spares = 0;                       // members beyond the size of the job
  };
  struct Events {
    std::function<bool()> ending;                  // the job is being ended
    std::function<void(const std::string&)> said;  // a sentence for the user
    // Hosts were demanded, to be free within that time, and may have been the last ones.
    std::function<void(base::Duration within)> demanded;
  };
  // `hosts` outlives this object. Its owner passes on what it reports: not_started(), left().
  HostProviders(boost::asio::io_context& loop, ElasticHosts& hosts, Options options, Events events);

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
  [[nodiscard]] lease::LeaseServer::Events lease_events();
  [[nodiscard]] base::Status on_offer(lease::GrantId id, const lease::LeaseOffer& offer);
  [[nodiscard]] agent::HostAccess access_through(lease::GrantId id);
  void revoke(lease::GrantId id, base::Duration within, const std::string& why);
  [[nodiscard]] base::Status on_reconnect(lease::GrantId id,
                                          const lease::LeaseReconnect& reconnect);
  void end_if_free(lease::GrantId id, const std::string& text);

  [[nodiscard]] base::Status on_growth(lease::GrantId id, const lease::LeaseOffer& offer);
  [[nodiscard]] base::Status on_wanted(lease::GrantId id, const lease::LeaseRevoke& what);
  [[nodiscard]] base::Status check_wanted(const lease::LeaseRevoke& what) const;
  void on_resized(lease::GrantId id, std::uint32_t members);
  void ask_for(std::uint32_t slots, lease::GrantId id);

  void reclaim_slots(std::size_t host, std::uint32_t slots, std::optional<lease::GrantId> id,
                     base::Duration within);
  void poll_reclaim(std::size_t host);
  void report_slots(std::size_t host);
  void return_slots(std::size_t host);
  void keep_slots(std::size_t host);

  [[nodiscard]] std::vector<HostUse> uses() const;
  void poll_idle();
  void release_idle();
  void return_host(std::size_t host);

  boost::asio::io_context& loop_;
  ElasticHosts& hosts_;
  const agent::Hosts& links_;
  const Options options_;
  const Events events_;
  HostLeases leases_;
  SlotReclaims reclaims_;
  HostTimers timers_;
  std::uint32_t size_ = 0;    // slots that the job needs; 0: not known
  std::uint32_t wanted_ = 0;  // slots to keep once members have left; 0: keep all hosts
  boost::asio::steady_timer idle_timer_;
  lease::LeaseServer lease_server_;
};

}  // namespace regroup::job
