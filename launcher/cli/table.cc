// The parts of the table put together, and how an option is found in it.
#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "base/values.h"
#include "launcher/cli/spec.h"

namespace regroup::cli {
namespace {

std::vector<Spec> all_options() {
  std::vector<Spec> out;
  const auto add = [&out](Group group, std::vector<Spec> part) {
    for (Spec& spec : part) {
      spec.group = group;
      out.push_back(std::move(spec));
    }
  };
  add(Group::kMembers, member_options());
  add(Group::kEnvironment, environment_options());
  add(Group::kOutput, output_options());
  add(Group::kHosts, host_options());
  add(Group::kPlacement, placement_options());
  add(Group::kEnd, end_options());
  add(Group::kElastic, elastic_options());
  add(Group::kRoles, role_options());
  add(Group::kGeneral, general_options());
  add(Group::kElsewhere, elsewhere_options());
  return out;
}

constexpr RenamedOption kRenamed[] = {
    {"bits", "reproducible", "on", "strict"}, {"every", "checkpoint-interval"},
    {"wait", "min-members-timeout"},          {"hung", "on-hang"},
    {"hung-after", "hang-timeout"},           {"start", "initial-size"}};

std::string with_hyphens(std::string_view name) {
  std::string plain(name);
  if (plain.size() > 2) std::ranges::replace(plain, '_', '-');
  return plain;
}

}  // namespace

const RenamedOption* find_renamed(std::string_view name) {
  const auto* const found =
      std::ranges::find(kRenamed, with_hyphens(name), &RenamedOption::old_name);
  return found == std::end(kRenamed) ? nullptr : found;
}

const std::vector<GroupText>& groups() {
  static const std::vector<GroupText> kGroups = {
      {Group::kMembers, "members", "Programs and members"},
      {Group::kEnvironment, "environment", "Environment"},
      {Group::kOutput, "output", "Output and input"},
      {Group::kHosts, "hosts", "Hosts"},
      {Group::kPlacement, "placement", "Placement"},
      {Group::kEnd, "end", "The end of a job"},
      {Group::kElastic, "elastic", "Elastic jobs"},
      {Group::kRoles, "roles", "Roles and limits"},
      {Group::kGeneral, "general", "General"},
      {Group::kElsewhere, "ignored", "Accepted without effect"},
  };
  return kGroups;
}

const std::vector<Spec>& table() {
  static const std::vector<Spec> kTable = all_options();
  return kTable;
}

const Spec* find_option(std::string_view name, spec::Compat compat) {
  using Index = std::multimap<std::string, const Spec*, std::less<>>;
  static const Index kIndex = [] {
    Index index;
    for (const Spec& spec : table()) {
      for (const std::string& each : spec.names) index.emplace(each, &spec);
    }
    return index;
  }();
  const RenamedOption* const renamed = find_renamed(name);
  const std::string plain = renamed != nullptr ? std::string(renamed->name) : with_hyphens(name);
  const Dialect other = compat == spec::Compat::kMpich ? Dialect::kOpenMpi : Dialect::kMpich;
  const auto [begin, end] = kIndex.equal_range(plain);
  const auto found =
      std::find_if(begin, end, [&](const auto& entry) { return entry.second->dialect != other; });
  return found == end ? nullptr : found->second;
}

std::string dashed(std::string_view name) {
  static const std::set<std::string_view> kOneDash = {"np", "ppn", "env", "wd", "rf", "am"};
  return (name.size() == 1 || kOneDash.count(name) > 0 ? "-" : "--") + std::string(name);
}

std::vector<std::string> value_names(const Spec& spec) {
  if (spec.value.empty()) return {};
  return base::split(spec.value, " ");
}

}  // namespace regroup::cli
