// Options of the controller of an elastic job on several hosts: elastic_controller.h.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "launcher/agent/messages.h"
#include "launcher/agent/node_agent.h"
#include "launcher/job/allocation_scaler.h"
#include "launcher/process/app.h"
#include "launcher/spec/hosts.h"
#include "proto/message.h"

namespace regroup::job {

struct ElasticControllerOptions {
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
  base::Duration orphan_timeout{};
  bool quiet = false;
  std::string grants_socket = {};  // path where `regroup join` offers hosts; "": none
  base::Duration notice_grace = agent::kNoticeGrace;  // of a host whose notice says no time
  std::shared_ptr<AllocationScaler> scaler = {};      // none: the allocation cannot grow or shrink
  proto::NodesKnown known = {};  // the message that ends the list of nodes at a start
  std::uint32_t spares = 0;      // members beyond the size of the job
};

}  // namespace regroup::job
