// Parameters of Open MPI that speak to its launcher, from --mca or from the environment: what
// people set to run more members than cores, or unbound, holds here too. An option on the command
// line goes before them.
#include <fmt/format.h>

#include "base/status.h"
#include "base/values.h"
#include "launcher/cli/finish.h"

namespace regroup::cli {
namespace {

using base::Status;

Status set_mapping(OptionsBuilder& builder, const std::string& value) {
  spec::MapBy& said = builder.out.mapping.map;
  spec::MapBy mapped;
  if (Status status = spec::parse_map_by(value, mapped); !status.ok()) return status;
  if (!said.oversubscribe) said.oversubscribe = mapped.oversubscribe;
  if (!said.hwthread_cpus) said.hwthread_cpus = mapped.hwthread_cpus;
  if (said.cpus == 0) said.cpus = mapped.cpus;
  if (said.kind != spec::MapBy::Kind::kDefault) return {};
  mapped.oversubscribe = said.oversubscribe;
  mapped.hwthread_cpus = said.hwthread_cpus;
  mapped.cpus = said.cpus;
  mapped.no_local = mapped.no_local || said.no_local;
  said = mapped;
  return {};
}

Status set_ranking(OptionsBuilder& builder, const std::string& value) {
  spec::RankBy& said = builder.out.mapping.rank;
  return said.kind == spec::RankBy::Kind::kDefault ? spec::parse_rank_by(value, said) : Status();
}

Status set_binding(OptionsBuilder& builder, const std::string& value) {
  spec::BindTo& said = builder.out.mapping.bind;
  return said.kind == spec::BindTo::Kind::kDefault ? spec::parse_bind_to(value, said) : Status();
}

bool is_on(const std::string& value) {
  return !value.empty() && value != "0" && base::lower(value) != "false";
}

Status set_oversubscribe(OptionsBuilder& builder, const std::string& value) {
  auto& said = builder.out.mapping.map.oversubscribe;
  if (!said && is_on(value)) said = true;
  return {};
}

Status set_no_oversubscribe(OptionsBuilder& builder, const std::string& value) {
  auto& said = builder.out.mapping.map.oversubscribe;
  if (!said && is_on(value)) said = false;
  return {};
}

Status set_tags(OptionsBuilder& builder, const std::string& value) {
  spec::OutputRequest& out = builder.out.output;
  if (out.tag == spec::OutputRequest::Tag::kNone && is_on(value))
    out.tag = spec::OutputRequest::Tag::kJobRank;
  return {};
}

Status set_timestamps(OptionsBuilder& builder, const std::string& value) {
  builder.out.output.timestamp = builder.out.output.timestamp || is_on(value);
  return {};
}

Status set_ssh_command(OptionsBuilder& builder, const std::string& value) {
  if (builder.out.ssh_command != std::vector<std::string>{"ssh"}) return {};
  // Alternatives: the first is taken.
  REGROUP_ASSIGN_OR_RETURN(auto words, base::shell_words(value.substr(0, value.find(" : "))));
  if (!words.empty()) builder.out.ssh_command = std::move(words);
  return {};
}

Status add_ssh_arguments(OptionsBuilder& builder, const std::string& value) {
  REGROUP_ASSIGN_OR_RETURN(auto words, base::shell_words(value));
  builder.out.ssh_command.insert(builder.out.ssh_command.end(), words.begin(), words.end());
  return {};
}

// Theirs is about the start only; here the tree that starts is the one that talks.
Status set_no_tree(OptionsBuilder& builder, const std::string& value) {
  if (!builder.out.tree_radix && is_on(value)) builder.out.tree_radix = 0;
  return {};
}

Status set_radix(OptionsBuilder& builder, const std::string& value) {
  std::uint32_t radix = 0;
  if (!base::read_number(value, radix)) return base::invalid_argument("expected a whole number");
  if (!builder.out.tree_radix) builder.out.tree_radix = radix;
  return {};
}

// The last one given for the job or its first program, else that of the environment; null: none.
const std::string* find_value(const OptionsBuilder& builder, const std::string& name) {
  const std::string* found = nullptr;
  const auto look = [&](const std::vector<EnvironmentChange>& changes) {
    for (const EnvironmentChange& change : changes) {
      const bool sets = change.kind == EnvironmentChange::Kind::kMca ||
                        change.kind == EnvironmentChange::Kind::kSet;
      if (sets && change.name == name) found = &change.value;
    }
  };
  look(builder.changes);
  if (!builder.done.empty()) look(builder.done[0].changes);
  const auto set = builder.context.environment.find(name);
  return found == nullptr && set != builder.context.environment.end() ? &set->second : found;
}

// VAR=VALUE or VAR, for all programs, between semicolons or what another parameter says. -x goes
// before it, as under Open MPI 5 (4 refuses both together).
Status export_list(OptionsBuilder& builder, const std::string& value) {
  const std::string* const delimiter = find_value(builder, "OMPI_MCA_mca_base_env_list_delimiter");
  std::vector<EnvironmentChange> changes;
  for (const std::string& part : base::split(
           value, delimiter == nullptr || delimiter->empty() ? ";" : delimiter->substr(0, 1))) {
    const std::size_t equals = part.find('=');
    const std::string name = part.substr(0, equals);
    if (part.empty()) continue;
    if (name.empty())
      return base::invalid_argument(fmt::format("'{}': expected VAR or VAR=VALUE", part));
    if (equals != std::string::npos) {
      changes.push_back({EnvironmentChange::Kind::kSet, name, part.substr(equals + 1), ""});
    } else if (builder.context.environment.contains(name)) {
      changes.push_back({EnvironmentChange::Kind::kExport, name, "", ""});
    } else {
      builder.out.notes.push_back(
          fmt::format("parameter mca_base_env_list: there is no variable {} to export", name));
    }
  }
  builder.changes.insert(builder.changes.begin(), changes.begin(), changes.end());
  return {};
}

struct Parameter {
  std::string_view name;
  Status (*apply)(OptionsBuilder& builder, const std::string& value);
};
constexpr Parameter kParameters[] = {{"OMPI_MCA_mca_base_env_list", export_list},
                                     {"OMPI_MCA_rmaps_base_oversubscribe", set_oversubscribe},
                                     {"OMPI_MCA_rmaps_base_no_oversubscribe", set_no_oversubscribe},
                                     {"OMPI_MCA_rmaps_base_mapping_policy", set_mapping},
                                     {"OMPI_MCA_rmaps_default_mapping_policy", set_mapping},
                                     {"PRTE_MCA_rmaps_default_mapping_policy", set_mapping},
                                     {"OMPI_MCA_rmaps_base_ranking_policy", set_ranking},
                                     {"PRTE_MCA_rmaps_default_ranking_policy", set_ranking},
                                     {"OMPI_MCA_hwloc_base_binding_policy", set_binding},
                                     {"OMPI_MCA_hwloc_default_binding_policy", set_binding},
                                     {"PRTE_MCA_hwloc_default_binding_policy", set_binding},
                                     {"OMPI_MCA_orte_tag_output", set_tags},
                                     {"OMPI_MCA_orte_timestamp_output", set_timestamps},
                                     {"OMPI_MCA_plm_rsh_agent", set_ssh_command},
                                     {"PRTE_MCA_plm_ssh_agent", set_ssh_command},
                                     {"OMPI_MCA_plm_rsh_args", add_ssh_arguments},
                                     {"PRTE_MCA_plm_ssh_args", add_ssh_arguments},
                                     {"OMPI_MCA_plm_rsh_no_tree_spawn", set_no_tree},
                                     {"PRTE_MCA_plm_ssh_no_tree_spawn", set_no_tree},
                                     {"OMPI_MCA_routed_radix", set_radix},
                                     {"PRTE_MCA_routed_radix", set_radix},
                                     {"PRTE_MCA_prte_routed_radix", set_radix}};

}  // namespace

Status apply_parameters(OptionsBuilder& builder) {
  for (const Parameter& parameter : kParameters) {
    const std::string* const found = find_value(builder, std::string(parameter.name));
    if (found == nullptr) continue;
    const std::string value = *found;  // what is applied may add changes
    if (Status status = parameter.apply(builder, value); !status.ok()) {
      return base::invalid_argument(
          fmt::format("parameter {}={}: {}", parameter.name, value, status.message()));
    }
  }
  return {};
}

}  // namespace regroup::cli
