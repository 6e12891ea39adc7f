// The own allocation of an elastic job on several hosts: what the job returns to its allocator and
// requests from it as its size changes, and what the allocator adds and demands back.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
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
#include "launcher/lease/grant_lines.h"
#include "launcher/lease/lease_server.h"

namespace regroup::job {

// Used by the loop's thread.
class OwnAllocation {
 public:
  struct Options {
    base::Duration notice_grace{};                  // for what the job returns by itself
    std::shared_ptr<AllocationScaler> scaler = {};  // none: the allocation cannot change
    std::uint32_t spares = 0;                       // members beyond the size of the job
  };
  struct Events {
    std::function<bool()> ending;                  // the job is being ended
    std::function<void(const std::string&)> said;  // a sentence for the user
    // The answer to that client: to resize(), or that the job keeps what it has demanded.
    std::function<void(lease::GrantId client, const std::string& text, bool ok)> answered;
    // Slots that the client has demanded are free.
    std::function<void(lease::GrantId client)> freed;
  };
  // `hosts` and `leases`, of hosts that belong to others, outlive this object.
  OwnAllocation(boost::asio::io_context& loop, ElasticHosts& hosts, const HostLeases& leases,
                Options options, Events events);

  // Says from now on which requests are cancelled.
  void start();
  // Hosts are offered that a request to the allocator may have led to.
  enum class Origin : std::uint8_t {
    kOthers,     // no request of this job
    kRequest,    // a pending request, which is over
    kCancelled,  // a request that was cancelled: the hosts are not needed
  };
  [[nodiscard]] Origin arrive(const std::string& request);
  // Cancels requests that are not needed any more, since hosts were added.
  void cancel_surplus();

  // The allocation has grown by new hosts, or by slots on hosts of the job. Returns a sentence.
  [[nodiscard]] base::Result<std::string> grow(const std::vector<spec::HostRequest>& more);
  // The allocator demands hosts, or some of their slots. Returns the hosts that it demands as a
  // whole, which the caller drains; slots are reclaimed, and freed() or answered() follows.
  [[nodiscard]] base::Result<std::vector<std::size_t>> demand(lease::GrantId client,
                                                              const lease::LeaseRevoke& what);
  // The clients that wait for slots.
  [[nodiscard]] std::set<lease::GrantId> clients() const { return reclaims_.clients(); }

  // The coordinator has accepted a new size. Requests missing slots, cancels requests that are not
  // needed any more, and returns hosts without members to the allocator or to the clients that have
  // offered them.
  void resize(lease::GrantId client, std::uint32_t members);
  // Offers a host that has left the job to the allocator. The job uses it again if the allocator
  // refuses.
  void return_host(std::size_t host);

 private:
  [[nodiscard]] base::Status check(const lease::LeaseRevoke& what) const;
  void reclaim(std::size_t host, std::uint32_t slots, std::optional<lease::GrantId> client,
               base::Duration within);
  void poll_reclaim(std::size_t host);
  void report_slots(std::size_t host);
  void return_slots(std::size_t host);
  void keep_slots(std::size_t host);
  void ask_for(std::uint32_t slots, lease::GrantId client);
  [[nodiscard]] std::vector<HostUse> uses() const;
  void poll_idle();
  void release_idle();

  ElasticHosts& hosts_;
  const agent::Hosts& links_;
  const HostLeases& leases_;
  const Options options_;
  const Events events_;
  SlotReclaims reclaims_;
  HostTimers timers_;
  std::uint32_t size_ = 0;    // slots that the job needs; 0: not known
  std::uint32_t wanted_ = 0;  // slots to keep once members have left; 0: keep all hosts
  boost::asio::steady_timer idle_timer_;
};

}  // namespace regroup::job
