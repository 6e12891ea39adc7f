// Roles of a cluster (chief, worker, ps, evaluator or other names) and the variables that describe
// the cluster to each member: TF_CONFIG for TensorFlow, PAI_* as on OpenPAI, JAX_* for
// jax.distributed. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "launcher/spec/request.h"

namespace regroup::job {

using spec::PortRequest;
using spec::Role;

// What a role means by its name, as in TensorFlow. A role of any other name is made of workers.
enum class RoleKind : std::uint8_t { kChief, kWorker, kServer, kEvaluator };
[[nodiscard]] RoleKind kind_of(const Role& role);  // "chief" or "master", "ps", "evaluator"

// kInvalidArgument says which role is wrong: no name, a character that a name may not have, a name
// twice, no member, more than one chief.
[[nodiscard]] base::Status check_roles(const std::vector<Role>& roles);

// Ranks go through the roles in their order: all of the first, then all of the second.
struct Task {
  std::size_t role = 0;     // number of its role
  std::uint32_t index = 0;  // in its role
};
[[nodiscard]] std::vector<Task> tasks_of(const std::vector<Role>& roles);  // by rank
[[nodiscard]] std::string task_name(const std::vector<Role>& roles,
                                    const Task& task);  // "worker 2"

// The rank of `member`: "N" is rank N, "worker:2" member 2 of that role. kNotFound: it is neither;
// the message says which there are.
[[nodiscard]] base::Result<std::uint32_t> rank_of(const std::vector<Role>& roles,
                                                  std::string_view member);

struct MemberPorts {
  std::string host;
  std::uint16_t port = 0;                            // in TF_CONFIG
  std::vector<std::vector<std::uint16_t>> labelled;  // as Role::ports
};

struct Cluster {
  std::string job_name;
  std::vector<Role> roles;
  std::vector<MemberPorts> members;    // by rank
  std::uint16_t coordinator_port = 0;  // on rank 0's host, of jax.distributed
};

// The variables of one member; docs/guide/clusterspec.md lists them. `cluster` has passed
// check_roles().
[[nodiscard]] spec::Environment cluster_environment(const Cluster& cluster, std::uint32_t rank);

}  // namespace regroup::job
