// What the hub of an elastic job on several hosts is made of: elastic_hub.h.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/message.h"
#include "core/status.h"
#include "launcher/cmd/allocation_scaler.h"
#include "launcher/node/messages.h"
#include "launcher/node/node_agent.h"
#include "launcher/options/hosts.h"
#include "launcher/supervise/app.h"

namespace regroup::cmd {

struct ElasticHubOptions {
  node::Setup setup;                 // of every host, but for its number and name
  launcher::App app;                 // looked for on each
  std::vector<std::uint32_t> slots;  // by host; 0: as many as it has cores
  // What each host is asked before its members are given seats; none: they get none. `seats` makes them of
  // the answer of a host, of which it knows what was granted, with so many slots; those of the hosts that
  // were up by then are in `first`.
  std::optional<node::InventoryRequest> inventory = {};
  using Seats = core::Result<std::vector<node::Seat>>;
  std::function<Seats(const launcher::HostRequest& host, std::uint32_t slots,
                      const core::Result<std::string>& answer)>
      seats = {};
  std::vector<launcher::HostRequest> granted = {};            // those of the start, and then of all that come
  std::map<std::size_t, std::vector<node::Seat>> first = {};  // by host
  core::Duration orphan_timeout{};
  bool quiet = false;
  std::string grants_socket = {};                    // where further hosts are offered; "": nowhere
  core::Duration notice_grace = node::kNoticeGrace;  // of a host whose agent is told that it ends
  std::shared_ptr<AllocationScaler> scaler = {};     // asks the allocator; none: nobody can be asked
  core::NodesKnown known = {};                       // what the coordinator is told when it knows the nodes
  std::uint32_t spares = 0;                          // members that a job has beyond its size
};

}  // namespace regroup::cmd
