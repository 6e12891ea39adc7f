// The environment is read here and nowhere else in the launcher; files named on the command line too.
#include "launcher/cmd/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <numeric>
#include <utility>

#include "core/world.h"
#include "launcher/cmd/allocation.h"
#include "launcher/cmd/discovery.h"
#include "launcher/cmd/time_limit.h"

namespace regroup::cmd {
namespace {

using core::invalid_argument;
using core::Status;

constexpr std::size_t kLargestFile = 16 << 20;
constexpr std::uint32_t kMostMembers = 65536;
constexpr std::array<std::string_view, 3> kOfRoles{"shards", "seed",
                                                   "reproducible"};  // of the options of any World

bool slots_given(const Options& options) {
  return !options.hosts.empty() && std::all_of(options.hosts.begin(), options.hosts.end(),
                                               [](const auto& host) { return host.slots != 0; });
}

}  // namespace

std::vector<std::string> host_names() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == 0) return {};
  return {name.data()};
}

// Any file, a pipe too: -hostfile <(...) is usual.
core::Result<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  if (!file) return core::system_error("open", path, errno);
  std::array<char, 65536> part{};
  do {
    errno = 0;
    file.read(part.data(), part.size());
    text.append(part.data(), static_cast<std::size_t>(file.gcount()));
    if (file.bad()) return core::system_error("read", path, errno != 0 ? errno : EIO);
    if (text.size() > kLargestFile) return invalid_argument(fmt::format("{}: larger than 16 MiB", path));
  } while (file);
  return text;
}

core::Result<Options> parse_options(const std::vector<std::string>& args, launcher::Environment environment,
                                    const std::string& program, int* exit_status) {
  const launcher::ParseContext context{
      program,
      std::move(environment),
      host_names(),
      read_file,
      [](const std::string& path) { return ::access(path.c_str(), X_OK) == 0; },
      [&environment = context.environment](const std::string& name) { return grant_of(environment, name); },
      [&environment = context.environment](const launcher::DiscoveryRequest& request,
                                           const std::string& name) {
        return discover_hosts(environment, request, name);
      }};
  if (const auto factor = time_limit_factor(context.environment); !factor.ok()) return factor.status();
  return launcher::parse_command_line(args, context, exit_status);
}

std::uint32_t slots_for(const Options& options, std::uint32_t slots) {
  if (!slots_given(options)) return slots;
  return std::accumulate(options.hosts.begin(), options.hosts.end(), 0U,
                         [](std::uint32_t sum, const auto& host) { return sum + host.slots; });
}

Status fit_to_slots(Options& options, std::uint32_t slots) {
  slots = slots_for(options, slots);
  if (options.max == 0) options.min = options.max = slots;
  if (options.apps.size() == 1 && !options.apps[0].count) options.apps[0].count = options.max;
  if (options.elastic && !options.several_hosts() && options.max >= core::kMaxSlots) {
    return invalid_argument(fmt::format("-np {}:{}: expected at most {} members on one machine", options.min,
                                        options.max, core::kMaxSlots - 1));
  }
  if (options.elastic && options.several_hosts() && options.do_not_launch) {
    return invalid_argument(
        "--do-not-launch: an elastic job on several hosts places its members as hosts come; use -np N to see "
        "where N ranks would go");
  }
  if (options.max > kMostMembers) {
    return invalid_argument(fmt::format("{} members: expected at most {}", options.max, kMostMembers));
  }
  if (!options.elastic && options.start != 0 && options.start != options.max) {
    return invalid_argument(
        fmt::format("--initial-size {}: requires an elastic job (-np MIN:MAX)", options.start));
  }
  const std::uint32_t room = options.oversubscribe ? options.max : slots;
  if (options.start == 0) {
    options.start = options.elastic ? std::max(options.min, std::min(options.max, slots)) : options.max;
  } else if (options.start < options.min || options.start > options.max) {
    return invalid_argument(fmt::format("--initial-size {}: expected a number in the range {}:{} of -np",
                                        options.start, options.min, options.max));
  }
  if (options.start > room) {
    return invalid_argument(
        fmt::format("{} members requested, {} slots {}available; --oversubscribe allows more", options.start,
                    slots, slots_given(options) ? "" : "(cores) "));
  }
  const std::uint32_t most = options.hosts.size() == 1 ? options.hosts[0].max_slots : 0;
  if (most != 0 && options.start > most) {
    return invalid_argument(
        fmt::format("{} members requested; the host file allows {} (max_slots)", options.start, most));
  }
  if (options.spares > 0 && !options.replace)
    return invalid_argument(
        fmt::format("--spares {}: cannot be combined with --replace never, which replaces no lost member",
                    options.spares));
  if (options.elastic && !options.several_hosts() && !options.oversubscribe &&
      options.start + options.spares > slots) {
    options.notes.push_back(fmt::format("--spares {}: {} slots have room for {} in addition to {} members",
                                        options.spares, slots, slots - options.start, options.start));
  }
  if (options.elastic && options.shards == 0) options.shards = std::bit_ceil(options.max);
  if (options.elastic && options.shards > core::kMaxShards) {
    return invalid_argument(
        fmt::format("--shards {}: expected at most {}", options.shards, core::kMaxShards));
  }
  return {};
}

bool has_roles(const Options& options) {
  return !options.job_file.empty() || (!options.apps.empty() && !options.apps.front().role.empty());
}

std::string unheeded_options(const Options& options) {
  std::vector<std::string> lines = options.quiet ? std::vector<std::string>() : options.notes;
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
    lines.push_back(
        fmt::format("{}: ignored; requires -np MIN:MAX or -np N without --role", fmt::join(of_world, ", ")));
  if (!options.elastic && !roles && options.max_restarts.value_or(0) != 0)
    lines.emplace_back("--max-restarts: ignored; requires -np MIN:MAX or --role");
  if (!roles && options.restart_policy != launcher::RestartPolicy::kEnd)
    lines.emplace_back("--restart-policy: ignored; requires --role");
  if ((options.elastic || roles) && (options.ulfm || options.keep_going))
    lines.emplace_back("--with-ft, --enable-recovery: ignored; require -np N without --role");
  if (!options.mapping.fabric.empty() && !options.several_hosts())
    lines.emplace_back("--fabric: ignored; requires a job on several hosts");
  return fmt::format("{}", fmt::join(lines, "\nregroup: "));
}

launcher::Environment read_environment() {
  launcher::Environment out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos) out.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return out;
}

std::string text_for(const Options& options, const std::string& program, const std::string& version) {
  if (options.verb == Verb::kVersion) return launcher::version_text(program, version);
  if (options.verb == Verb::kHelp) return launcher::help_text(options.topic);
  if (options.topic == "man") return launcher::man_page(version);
  return options.topic == "bash" ? launcher::bash_completion() : launcher::zsh_completion();
}

std::string help_text() { return launcher::help_text(""); }

}  // namespace regroup::cmd
