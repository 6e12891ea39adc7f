// A store of a job's parameter server on another host than the launcher's, for the agent there.
#pragma once

#include <string>

#include "launcher/agent/store.h"
#include "launcher/spec/request.h"

namespace regroup::job {

struct HostStoreOptions {
  std::string program;            // path of regroup-ps
  std::string persist;            // path of regroup-persist
  spec::Environment environment;  // its
  std::string memory_socket;      // where members of this host get the memory
};

// Stores whose servers are ParameterServers. The memory is reserved on a thread, since the agent's
// loop must go on meanwhile.
[[nodiscard]] agent::StoreFactory host_stores(HostStoreOptions options);

}  // namespace regroup::job
