// The ports of a cluster, held for the life of a job: a member that is started again finds its own free.
#pragma once

#include <cstdint>
#include <vector>

#include "core/fd.h"
#include "core/status.h"
#include "launcher/roles/cluster_spec.h"

namespace regroup::launcher {

// Each socket is bound with SO_REUSEADDR and never listens: a server that sets SO_REUSEADDR (gRPC, and so
// TensorFlow and JAX; Python's socketserver) can take the port meanwhile, and nobody gets it by chance.
struct PortPool {
  std::vector<core::Fd> sockets;     // closing them gives the ports up
  std::vector<MemberPorts> members;  // by rank
  std::uint16_t coordinator_port = 0;
};

// Ports of 127.0.0.1 for every member of `roles`, and one for a coordinator. The caller's process holds them;
// they are not inherited through execve. kInvalidArgument names a role and a label with a port above 65535 or
// asked for twice; otherwise the port that is taken is named.
[[nodiscard]] core::Result<PortPool> hold_ports(const std::vector<Role>& roles);

}  // namespace regroup::launcher
