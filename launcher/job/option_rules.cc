// What several kinds of jobs read of the options in the same way.
#include "launcher/job/option_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>
#include <vector>

namespace regroup::job {
namespace {

// Of the options of any World.
constexpr std::array<std::string_view, 3> kOfRoles{"shards", "seed", "reproducible"};
// How options begin that --ps-memory has, too.
constexpr std::string_view kCheckpoint = "checkpoint";

}  // namespace

bool slots_given(const spec::JobSpec& spec) {
  return !spec.hosts.empty() && std::all_of(spec.hosts.begin(), spec.hosts.end(),
                                            [](const auto& host) { return host.slots != 0; });
}

std::uint32_t slots_for(const spec::JobSpec& spec, std::uint32_t slots) {
  if (!slots_given(spec)) return slots;
  return std::accumulate(spec.hosts.begin(), spec.hosts.end(), 0U,
                         [](std::uint32_t sum, const auto& host) { return sum + host.slots; });
}

bool has_roles(const spec::JobSpec& spec) { return !spec.roles.empty(); }

std::string unheeded_options(const spec::JobSpec& spec, const std::vector<std::string>& notes) {
  std::vector<std::string> lines;
  if (!spec.quiet) lines = spec.notes;
  if (!spec.quiet) lines.insert(lines.end(), notes.begin(), notes.end());
  if (!spec.elastic && !spec.elastic_options.empty()) {
    lines.push_back(fmt::format("{}: ignored; requires an elastic job (-np MIN:MAX)",
                                fmt::join(spec.elastic_options, ", ")));
  }
  const bool roles = has_roles(spec);
  std::vector<std::string> of_world = roles ? spec.world_options : std::vector<std::string>();
  std::erase_if(of_world, [&](const std::string& given) {
    const std::string_view name = std::string_view(given).substr(given.find_first_not_of('-'));
    return std::ranges::find(kOfRoles, name) != kOfRoles.end() ||
           (spec.ps_memory != 0 && (name == "hang-timeout" || name.starts_with(kCheckpoint)));
  });
  if (!of_world.empty())
    lines.push_back(fmt::format("{}: ignored; requires -np MIN:MAX or -np N without --role",
                                fmt::join(of_world, ", ")));
  if (!spec.elastic && !roles && spec.max_restarts.value_or(0) != 0)
    lines.emplace_back("--max-restarts: ignored; requires -np MIN:MAX or --role");
  if (!roles && spec.restart_policy != spec::RestartPolicy::kEnd)
    lines.emplace_back("--restart-policy: ignored; requires --role");
  if ((spec.elastic || roles) && (spec.ulfm || spec.keep_going))
    lines.emplace_back("--with-ft, --enable-recovery: ignored; require -np N without --role");
  if (!spec.mapping.fabric.empty() && !spec.several_hosts())
    lines.emplace_back("--fabric: ignored; requires a job on several hosts");
  return fmt::format("{}", fmt::join(lines, "\nregroup: "));
}

}  // namespace regroup::job
