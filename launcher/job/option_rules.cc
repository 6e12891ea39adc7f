// Counts that the command line leaves open follow from the slots.
#include "launcher/job/option_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <string_view>
#include <vector>

#include "base/printable.h"
#include "proto/world.h"

namespace regroup::job {
namespace {

using base::invalid_argument;
using base::Result;

constexpr std::uint32_t kMostMembers = 65536;
constexpr std::array<std::string_view, 3> kOfRoles{"shards", "seed",
                                                   "reproducible"};  // of the options of any World

bool slots_given(const spec::Options& options) {
  return !options.hosts.empty() && std::all_of(options.hosts.begin(), options.hosts.end(),
                                               [](const auto& host) { return host.slots != 0; });
}

}  // namespace

std::uint32_t slots_for(const spec::Options& options, std::uint32_t slots) {
  if (!slots_given(options)) return slots;
  return std::accumulate(options.hosts.begin(), options.hosts.end(), 0U,
                         [](std::uint32_t sum, const auto& host) { return sum + host.slots; });
}

Result<Members> fit_to_slots(const spec::Options& options, spec::MemberRange asked,
                             std::uint32_t slots) {
  slots = slots_for(options, slots);
  Members out{.min = asked.min, .max = asked.max, .start = options.start, .shards = options.shards};
  if (out.max == 0) out.min = out.max = slots;
  for (const spec::AppRequest& app : options.apps)
    out.counts.push_back(app.count.value_or(out.max));
  const bool one_host = !options.several_hosts();
  if (options.elastic && one_host && out.max >= proto::kMaxSlots) {
    return invalid_argument(fmt::format("-np {}:{}: expected at most {} members on one machine",
                                        out.min, out.max, proto::kMaxSlots - 1));
  }
  if (options.elastic && !one_host && options.do_not_launch) {
    return invalid_argument(
        "--do-not-launch: an elastic job on several hosts places its members as hosts come; use "
        "-np N to see "
        "where N ranks would go");
  }
  if (out.max > kMostMembers) {
    return invalid_argument(fmt::format("{} members: expected at most {}", out.max, kMostMembers));
  }
  if (!options.elastic && out.start != 0 && out.start != out.max) {
    return invalid_argument(
        fmt::format("--initial-size {}: requires an elastic job (-np MIN:MAX)", out.start));
  }
  if (out.start == 0) {
    out.start = options.elastic ? std::max(out.min, std::min(out.max, slots)) : out.max;
  } else if (out.start < out.min || out.start > out.max) {
    return invalid_argument(
        fmt::format("--initial-size {}: expected a number in the range {}:{} of -np", out.start,
                    out.min, out.max));
  }
  if (out.start > (options.oversubscribe ? out.max : slots)) {
    return invalid_argument(fmt::format("{} requested, {} {}available; --oversubscribe allows more",
                                        base::counted(out.start, "member"),
                                        base::counted(slots, "slot"),
                                        one_host && !slots_given(options) ? "(cores) " : ""));
  }
  const std::uint32_t most = options.hosts.size() == 1 ? options.hosts[0].max_slots : 0;
  if (most != 0 && out.start > most) {
    return invalid_argument(fmt::format("{} requested; the host file allows {} (max_slots)",
                                        base::counted(out.start, "member"), most));
  }
  if (options.spares > 0 && !options.replace)
    return invalid_argument(fmt::format(
        "--spares {}: cannot be combined with --replace never, which replaces no lost member",
        options.spares));
  if (options.elastic && one_host && !options.oversubscribe && out.start + options.spares > slots) {
    out.notes.push_back(fmt::format("--spares {}: {} {} room for {} in addition to {}",
                                    options.spares, base::counted(slots, "slot"),
                                    slots == 1 ? "has" : "have", slots - out.start,
                                    base::counted(out.start, "member")));
  }
  if (out.shards == 0)
    out.shards = options.elastic ? std::bit_ceil(out.max)
                                 : std::min(std::bit_ceil(out.max), proto::kMaxShards);
  if (options.elastic && out.shards > proto::kMaxShards) {
    return invalid_argument(
        fmt::format("--shards {}: expected at most {}", out.shards, proto::kMaxShards));
  }
  return out;
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
