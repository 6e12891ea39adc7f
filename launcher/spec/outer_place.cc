// By name or by prefix. Done before the user's own changes, so that what the command line says is
// kept.
#include "launcher/spec/outer_place.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace regroup::spec {
namespace {

constexpr std::array<std::string_view, 4> kPrefixes = {"PMIX_", "PMI_", "OMPI_COMM_WORLD_",
                                                       "REGROUP_ROLE"};
constexpr std::string_view kNames[] = {
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "OMPI_MCA_orte_hnp_uri",
    "JAX_COORDINATOR_PORT",
    "OMPI_COMMAND",
    "OMPI_ARGV",
    "OMPI_NUM_APP_CTX",
    "OMPI_APP_CTX_NUM_PROCS",
    "OMPI_FIRST_RANKS",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_MAX_RESTARTS",
    "TORCHELASTIC_USE_AGENT_STORE",  // rank 0 waits for its store
    "TORCHELASTIC_ERROR_FILE",
    "REGROUP_JOB",
    "REGROUP_AGENT",
    "REGROUP_MEMBER",
    "REGROUP_WORLD",
    "REGROUP_RANK_EXITS",
    "REGROUP_AUDIT",
    "REGROUP_LEDGER",
    "REGROUP_TIMELINE",
    "REGROUP_PS"};

bool tells_place(std::string_view name) {
  if (name.starts_with("PMIX_MCA_")) return false;
  return std::ranges::find(kNames, name) != std::end(kNames) ||
         std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [name](std::string_view prefix) { return name.starts_with(prefix); });
}

}  // namespace

Environment without_outer_place(Environment environment) {
  const auto is_outer = [](const auto& entry) {
    return tells_place(entry.first) && (entry.first != "REGROUP_WORLD" || entry.second == "fixed");
  };
  std::erase_if(environment, is_outer);
  return environment;
}

}  // namespace regroup::spec
