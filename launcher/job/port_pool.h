// The ports of a cluster, reserved for the life of a job, so that a restarted member can bind its
// ports again.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "launcher/job/cluster_spec.h"

namespace regroup::job {

// Each socket is bound with SO_REUSEADDR and never listens: a server that sets SO_REUSEADDR (gRPC,
// and so TensorFlow and JAX; Python's socketserver) can bind the port meanwhile, and the kernel
// gives it to no other process as an ephemeral port.
struct HeldPorts {
  std::vector<base::Fd> sockets;  // closing them gives the ports up
  std::vector<std::uint16_t> numbers;
};

inline constexpr std::string_view kThisHost = "127.0.0.1";

// One for each of `wanted`, 0 being any one, of `address`, "" being all of this host. The caller's
// process holds them; they are not inherited through execve. The port that is taken is named.
[[nodiscard]] base::Result<HeldPorts> hold_ports(const std::vector<std::uint16_t>& wanted,
                                                 std::string_view address);

// The ports that each of `hosts` hosts is to hold for its members of `roles` (`host_of` by rank;
// empty: all are on the first), and the first member's for a coordinator, too; 0: any one.
// kInvalidArgument names a role and a label with a port above 65535 or asked for twice on a host.
[[nodiscard]] base::Result<std::vector<std::vector<std::uint16_t>>> ports_wanted(
    const std::vector<Role>& roles, const std::vector<std::uint32_t>& host_of, std::size_t hosts);
// Puts the reserved ports into `cluster`, for its members' variables: `numbers` by host, in the
// order of ports_wanted(), and the address of each host.
void give_ports(Cluster& cluster, const std::vector<std::uint32_t>& host_of,
                const std::vector<std::vector<std::uint16_t>>& numbers,
                const std::vector<std::string>& addresses);

// As JSON, from an agent to the controller. kDataLoss: it is not such a text.
[[nodiscard]] std::string ports_to_json(const std::vector<std::uint16_t>& numbers);
[[nodiscard]] base::Result<std::vector<std::uint16_t>> ports_from_json(std::string_view text);

}  // namespace regroup::job
