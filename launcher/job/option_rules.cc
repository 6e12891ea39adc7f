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

constexpr std::array<std::string_view, 3> kOfRoles{"shards", "seed",
                                                   "reproducible"};  // of the options of any World

}  // namespace

bool slots_given(const spec::Options& options) {
  return !options.hosts.empty() && std::all_of(options.hosts.begin(), options.hosts.end(),
                                               [](const auto& host) { return host.slots != 0; });
}

std::uint32_t slots_for(const spec::Options& options, std::uint32_t slots) {
  if (!slots_given(options)) return slots;
  return std::accumulate(options.hosts.begin(), options.hosts.end(), 0U,
                         [](std::uint32_t sum, const auto& host) { return sum + host.slots; });
}

bool has_roles(const spec::Options& options) { return !options.roles.empty(); }

std::string unheeded_options(const spec::Options& options, const std::vector<std::string>& notes) {
  std::vector<std::string> lines;
  if (!options.quiet) lines = options.notes;
  if (!options.quiet) lines.insert(lines.end(), notes.begin(), notes.end());
  if (!options.elastic && !options.elastic_options.empty()) {
    lines.push_back(fmt::format("{}: ignored; requires an elastic job (-np MIN:MAX)",
                                fmt::join(options.elastic_options, ", ")));
  }
  const bool roles = has_roles(options);
  std::vector<std::string> of_world = roles ? options.world_options : std::vector<std::string>();
  std::erase_if(of_world, [](const std::string& name) {
    return std::ranges::find(kOfRoles, name.substr(name.find_first_not_of('-'))) != kOfRoles.end();
  });
  if (!of_world.empty())
    lines.push_back(fmt::format("{}: ignored; requires -np MIN:MAX or -np N without --role",
                                fmt::join(of_world, ", ")));
  if (!options.elastic && !roles && options.max_restarts.value_or(0) != 0)
    lines.emplace_back("--max-restarts: ignored; requires -np MIN:MAX or --role");
  if (!roles && options.restart_policy != spec::RestartPolicy::kEnd)
    lines.emplace_back("--restart-policy: ignored; requires --role");
  if ((options.elastic || roles) && (options.ulfm || options.keep_going))
    lines.emplace_back("--with-ft, --enable-recovery: ignored; require -np N without --role");
  if (!options.mapping.fabric.empty() && !options.several_hosts())
    lines.emplace_back("--fabric: ignored; requires a job on several hosts");
  return fmt::format("{}", fmt::join(lines, "\nregroup: "));
}

}  // namespace regroup::job
