// Which host each member runs on: mapping over hosts as mpirun does it, as a pure function. Where
// on that host is place.h's question.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/spec/hosts.h"
#include "launcher/spec/mapping.h"

namespace regroup::placement {

struct HostMapRequest {
  std::vector<spec::HostRequest> hosts;  // in their order, slots known
  // Members of each program; ranks go through the programs in order.
  std::vector<std::uint32_t> counts;
  std::vector<std::uint32_t> per_host;  // most of each program on a host (-N); 0: any number
  std::vector<std::uint32_t> most;      // by host, the same for it alone (ppr); empty: any number
  spec::MapBy map;
  std::vector<std::string> sequence;  // --map-by seq: by rank, the name of its host
  bool oversubscribe = false;         // slots may be exceeded; max_slots never are
};

// By rank, the index of its host. A host's slots are filled before the next one is, unless members
// go round
// (--map-by node) or are counted for each host. kResourceExhausted names what is asked for and what
// there is.
[[nodiscard]] base::Result<std::vector<std::uint32_t>> map_to_hosts(const HostMapRequest& request);

}  // namespace regroup::placement
