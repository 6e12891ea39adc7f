// Options of the controller of an elastic job on several hosts: elastic_controller.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "launcher/agent/node_agent.h"
#include "launcher/job/allocation_scaler.h"
#include "launcher/job/elastic_hosts.h"
#include "proto/message.h"

namespace regroup::job {

struct ElasticControllerOptions : ElasticHostsOptions {
  base::Duration orphan_timeout{};
  bool quiet = false;
  std::string grants_socket = {};  // path where `regroup join` offers hosts; "": none
  base::Duration notice_grace = agent::kNoticeGrace;  // of a host whose notice says no time
  std::shared_ptr<AllocationScaler> scaler = {};      // none: the allocation cannot grow or shrink
  proto::NodesKnown known = {};  // the message that ends the list of nodes at a start
  std::uint32_t spares = 0;      // members beyond the size of the job
};

}  // namespace regroup::job
