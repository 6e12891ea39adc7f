// The evaluator gets the cluster without being a part of it, as TensorFlow's guide to distributed
// training requires. PAI_* follow OpenPAI's user manual. jax.distributed.initialize() reads the
// address in JAX_*.
#include "launcher/job/cluster_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "base/values.h"

namespace regroup::job {
namespace {

bool fits_variable(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

std::string address_of(const MemberPorts& member) {
  return fmt::format("{}:{}", member.host, member.port);
}

std::string tf_config(const Cluster& cluster, const std::vector<Task>& tasks, std::uint32_t rank) {
  auto addresses = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const Role& role = cluster.roles[tasks[i].role];
    if (kind_of(role) != RoleKind::kEvaluator)
      addresses[role.name].push_back(address_of(cluster.members[i]));
  }
  const nlohmann::ordered_json config{
      {"cluster", std::move(addresses)},
      {"task", {{"type", cluster.roles[tasks[rank].role].name}, {"index", tasks[rank].index}}}};
  return config.dump();
}

void add_pai_member(const Cluster& cluster, const Task& task, const MemberPorts& member,
                    spec::Environment& out) {
  const Role& role = cluster.roles[task.role];
  const std::string of_member = fmt::format("{}_{}", role.name, task.index);
  out["PAI_HOST_IP_" + of_member] = member.host;
  for (std::size_t i = 0; i < role.ports.size(); ++i) {
    out[fmt::format("PAI_PORT_LIST_{}_{}", of_member, role.ports[i].label)] =
        fmt::format("{}", fmt::join(member.labelled[i], ","));
  }
  std::string& hosts = out[fmt::format("PAI_TASK_ROLE_{}_HOST_LIST", role.name)];
  hosts += (hosts.empty() ? "" : ",") + address_of(member);
}

void add_pai(const Cluster& cluster, const std::vector<Task>& tasks, std::uint32_t rank,
             spec::Environment& out) {
  out["PAI_JOB_NAME"] = cluster.job_name;
  out["PAI_TASK_ROLE_COUNT"] = std::to_string(cluster.roles.size());
  std::string& list = out["PAI_TASK_ROLE_LIST"];
  for (const Role& role : cluster.roles) {
    list += (list.empty() ? "" : ",") + role.name;
    out["PAI_TASK_ROLE_TASK_COUNT_" + role.name] = std::to_string(role.count);
  }
  for (std::size_t i = 0; i < tasks.size(); ++i)
    add_pai_member(cluster, tasks[i], cluster.members[i], out);
  out["PAI_CURRENT_TASK_ROLE_NAME"] = cluster.roles[tasks[rank].role].name;
  out["PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX"] = std::to_string(tasks[rank].index);
}

// Only where a role asks for GPUs: then each member sees its own and no others.
void add_gpus(const Cluster& cluster, const std::vector<Task>& tasks, std::uint32_t rank,
              spec::Environment& out) {
  const auto gpus_of = [&](const Task& task) { return cluster.roles[task.role].gpus; };
  if (std::none_of(cluster.roles.begin(), cluster.roles.end(),
                   [](const Role& r) { return r.gpus > 0; }))
    return;
  std::uint32_t first = 0;
  for (std::uint32_t i = 0; i < rank; ++i) {
    if (cluster.members[i].host == cluster.members[rank].host) first += gpus_of(tasks[i]);
  }
  std::vector<std::uint32_t> mine(gpus_of(tasks[rank]));
  std::iota(mine.begin(), mine.end(), first);
  out["CUDA_VISIBLE_DEVICES"] = fmt::format("{}", fmt::join(mine, ","));
}

// The members of a role that call join() form one World.
void add_role(const Cluster& cluster, const std::vector<Task>& tasks, std::uint32_t rank,
              spec::Environment& out) {
  const Task& own = tasks[rank];
  std::size_t here = 0;
  for (std::size_t i = 0; i < tasks.size(); ++i)
    here +=
        tasks[i].role == own.role && cluster.members[i].host == cluster.members[rank].host ? 1 : 0;
  out["REGROUP_ROLE"] = cluster.roles[own.role].name;
  out["REGROUP_ROLE_RANK"] = std::to_string(own.index);
  out["REGROUP_ROLE_SIZE"] = std::to_string(cluster.roles[own.role].count);
  out["REGROUP_ROLE_LOCAL_SIZE"] = std::to_string(here);
  out["ROLE_RANK"] = std::to_string(own.index);  // as torchrun sets them
  out["ROLE_WORLD_SIZE"] = std::to_string(cluster.roles[own.role].count);
}

}  // namespace

RoleKind kind_of(const Role& role) {
  if (role.name == "chief" || role.name == "master") return RoleKind::kChief;
  if (role.name == "ps") return RoleKind::kServer;
  return role.name == "evaluator" ? RoleKind::kEvaluator : RoleKind::kWorker;
}

base::Status check_roles(const std::vector<Role>& roles) {
  std::set<std::string> names;
  std::uint32_t chiefs = 0;
  for (const Role& role : roles) {
    if (role.name.empty()) return base::invalid_argument("a role has no name");
    if (!std::all_of(role.name.begin(), role.name.end(), fits_variable)) {
      return base::invalid_argument(
          fmt::format("role {}: expected a name of letters, digits, _ and -", role.name));
    }
    if (!names.insert(role.name).second) {
      return base::invalid_argument(
          fmt::format("role {}: given twice; expected each role once", role.name));
    }
    if (role.count == 0)
      return base::invalid_argument(fmt::format("role {} has no member", role.name));
    if (kind_of(role) == RoleKind::kChief) chiefs += role.count;
  }
  if (chiefs > 1)
    return base::invalid_argument(fmt::format("expected at most one chief, got {}", chiefs));
  return {};
}

std::vector<Task> tasks_of(const std::vector<Role>& roles) {
  std::vector<Task> out;
  for (std::size_t role = 0; role < roles.size(); ++role) {
    for (std::uint32_t index = 0; index < roles[role].count; ++index) out.push_back({role, index});
  }
  return out;
}

std::string task_name(const std::vector<Role>& roles, const Task& task) {
  return fmt::format("{} {}", roles[task.role].name, task.index);
}

base::Result<std::uint32_t> rank_of(const std::vector<Role>& roles, std::string_view member) {
  const std::size_t colon = member.find(':');
  std::uint32_t number = 0;
  const std::string_view digits = colon == member.npos ? member : member.substr(colon + 1);
  const bool is_number = base::read_number(digits, number);
  std::uint32_t first = 0;  // rank of the role
  std::string names;
  for (const Role& role : roles) {
    const bool wanted = colon != member.npos && role.name == member.substr(0, colon);
    if (wanted && is_number && number < role.count) return first + number;
    first += role.count;
    names += names.empty() ? role.name + ":0" : fmt::format(", {}:0", role.name);
    if (role.count > 1) names += fmt::format(" to {}", role.count - 1);
  }
  if (colon == member.npos && is_number && number < first) return number;
  return base::not_found(
      fmt::format("kill-member {}: no such member; there are {}", member, names));
}

spec::Environment cluster_environment(const Cluster& cluster, std::uint32_t rank) {
  const std::vector<Task> tasks = tasks_of(cluster.roles);
  spec::Environment out;
  out["TF_CONFIG"] = tf_config(cluster, tasks, rank);
  out["JAX_COORDINATOR_ADDRESS"] =
      fmt::format("{}:{}", cluster.members.front().host, cluster.coordinator_port);
  out["JAX_NUM_PROCESSES"] = std::to_string(tasks.size());
  out["JAX_PROCESS_ID"] = std::to_string(rank);
  add_pai(cluster, tasks, rank, out);
  add_role(cluster, tasks, rank, out);
  add_gpus(cluster, tasks, rank, out);
  return out;
}

}  // namespace regroup::job
