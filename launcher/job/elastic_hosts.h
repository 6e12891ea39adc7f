// The hosts of an elastic job: sets their agents up, starts lost ones again, and drains hosts that
// leave.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "launcher/agent/hosts.h"
#include "launcher/agent/messages.h"
#include "launcher/job/agent_restarts.h"
#include "launcher/job/host_exits.h"
#include "launcher/job/host_slots.h"
#include "launcher/job/host_timers.h"
#include "launcher/process/app.h"
#include "launcher/spec/hosts.h"
#include "proto/message.h"

namespace regroup::job {

struct ElasticHostsOptions {
  agent::Setup setup;  // of every host, except for its number and name
  process::App app;    // each host looks for the program itself
  // Requests the inventory of each host before its members get resources; none: members get no
  // resources. `resources_of` assigns the resources of `slots` slots from the answer of a host and
  // from what was granted there. `first_resources` has the result for hosts that were up at the
  // start.
  std::optional<agent::InventoryRequest> inventory = {};
  using Resources = base::Result<std::vector<agent::SlotResources>>;
  std::function<Resources(const spec::HostRequest& host, std::uint32_t slots,
                          const base::Result<std::string>& answer)>
      resources_of = {};
  std::vector<spec::HostRequest> granted = {};  // by host, of the start and of all that are added
  std::map<std::size_t, std::vector<agent::SlotResources>> first_resources = {};  // by host
};

// How an agent gets to `host` by the commands of `way`.
[[nodiscard]] agent::HostAccess access_to(const spec::HostRequest& host, const spec::Grant& way);

// Hosts are named by their index, which they keep; one that has left and is added again gets
// another one. Used by the loop's thread.
class ElasticHosts {
 public:
  struct Events {
    // The job is being ended: no agent is started and no host drained any more.
    std::function<bool()> ending;
    std::function<void(const std::string&)> said;  // a sentence for the user
    // Of a node that the coordinator knows, or is to know from now on.
    std::function<void(const proto::NodeUp&)> changed;
    // Its agent is lost. The host may come back as another node.
    std::function<void(const proto::NodeLost&)> lost;
    // The start of its agent has failed, and is tried again if the host stays. True: the client
    // that waits for the host was told why; else the user is told, once for each reason.
    std::function<bool(std::size_t host, const std::string& why)> not_started;
    // The host has left the job, from the stage `before`; `how` is a sentence.
    std::function<void(std::size_t host, HostStage before, const std::string& how)> left;
  };
  // The hosts of `links` are the first ones of the job. `links` outlives this object and is served
  // by its owner, who passes on what it reports: came(), lost(), ended().
  ElasticHosts(boost::asio::io_context& loop, ElasticHostsOptions options, agent::Hosts& links,
               Events events);

  // Sets up the hosts that are up; the others come later. After Hosts::serve().
  void start();
  // The agent of a host is up. Its members may get resources, so its inventory is requested first.
  void came(std::size_t host);
  void lost(std::size_t host, const base::Status& why);
  void ended(std::size_t host) { leave(host, HostEvent::kEnded); }

  // Starts the agent of a further host. `leased`: by a user, beyond what the job needs.
  void add(const spec::HostRequest& host, agent::HostAccess way, bool leased = false);
  // The host has `slots` slots now; `for_now`: it may get back those that it has lost.
  void set_slots(std::size_t host, std::uint32_t slots, bool for_now = false);

  // The host must be free `within` that time: for good, until resume(), or because the job does not
  // need it, in which case it may go back to its allocator. `why`, `source`: of the notice.
  void demand(std::size_t host, base::Duration within, const std::string& why);
  void suspend(std::size_t host, base::Duration within, const std::string& source);
  void resume(std::size_t host, const std::string& why);
  void return_idle(std::size_t host, base::Duration within, bool to_allocator);

  // Which hosts there are, are up, and have how many members.
  [[nodiscard]] const agent::Hosts& links() const { return links_; }
  // The host of this name that has not left the job.
  [[nodiscard]] std::optional<std::size_t> find(const std::string& name) const;
  [[nodiscard]] HostStage stage(std::size_t host) const { return exits_.stage(host); }
  [[nodiscard]] bool stays(std::size_t host) const { return exits_.stays(host); }
  // A host is up and stays.
  [[nodiscard]] bool any_stays() const;
  [[nodiscard]] std::uint32_t given_slots(std::size_t host) const { return slots_.given(host); }
  // The message to the coordinator that the host is up.
  [[nodiscard]] proto::NodeUp node_up(std::size_t host) const;

 private:
  void begin(std::size_t host);
  void set_up(std::size_t host, std::vector<agent::SlotResources> resources);
  void join(std::size_t host, std::vector<agent::SlotResources> resources);
  void report_failed_start(std::size_t host, const std::string& why);
  void restart_later(std::size_t host);
  void say_change(std::size_t host, const HostExits::Change& change, base::Duration within,
                  const std::string& why);
  void drain(std::size_t host);
  void poll_drained(std::size_t host);
  void leave(std::size_t host, HostEvent event);

  ElasticHostsOptions options_;  // `granted` grows with the hosts
  agent::Hosts& links_;
  const Events events_;
  HostSlots slots_;
  AgentRestarts restarts_;
  HostExits exits_;
  HostTimers timers_;
};

}  // namespace regroup::job
