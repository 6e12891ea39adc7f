// Maps members to hosts as mpirun does; a pure function. place.h then places them within a host.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/spec/hosts.h"
#include "launcher/spec/mapping.h"

namespace regroup::placement {

struct HostMapRequest {
  std::vector<spec::HostRequest> hosts;  // in the order to fill them, with known slots
  // Members of each program; ranks go through the programs in order.
  std::vector<std::uint32_t> counts;
  // The only hosts of each program, by name, in the order to fill them; an empty list: all hosts.
  // Empty: no program is limited.
  std::vector<std::vector<std::string>> only_hosts;
  std::vector<std::uint32_t> per_host;  // greatest number on a host, per program (-N); 0: unlimited
  std::vector<std::uint32_t> most;      // the same limit, per host (ppr); empty: unlimited
  // Greatest number of members on a host that are bound to a list of processors; 0: unlimited.
  // Members beyond the slots are not counted.
  std::uint32_t most_of_list = 0;
  bool list_per_program = false;  // each program has the list for itself
  // Greatest number of members of all programs on a host, per host, since each must be bound to
  // processors of its own; empty: unlimited.
  std::vector<std::uint32_t> most_bound;
  spec::MapBy map;
  spec::RankBy rank;  // by node: consecutive ranks on different hosts; by slot: on the same
  std::vector<std::string> sequence;  // --map-by seq: the host name of each rank
  bool oversubscribe = false;         // members may exceed slots, but never max_slots
  // As hydra: hosts get as many members as they have slots, or `per_host` where it is given, one
  // after the other and again from the first, and a program goes on where the one before ended.
  bool cyclic = false;
};

// Returns the host index of each rank. Fills a host's slots before the next host, unless members go
// round robin (--map-by node), have a fixed number per host, or `cyclic` is set. A program's ranks
// go over its hosts in the order in which these got their first member of any program.
// kUnavailable: the slots do not suffice; kResourceExhausted: another limit. The message says what
// was requested and what is available.
[[nodiscard]] base::Result<std::vector<std::uint32_t>> map_to_hosts(const HostMapRequest& request);

}  // namespace regroup::placement
