// The environment is read here and nowhere else in the launcher; files named on the command line
// too.
#include "launcher/cli/options.h"

#include <unistd.h>

#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>

#include "launcher/job/discovery.h"
#include "launcher/job/grant.h"
#include "launcher/job/host_names.h"
#include "launcher/job/job_file.h"
#include "launcher/job/this_host.h"
#include "launcher/process/time_limit.h"

namespace regroup::cli {

base::Result<CommandLine> parse_options(const std::vector<std::string>& args,
                                        spec::Environment environment, const std::string& program,
                                        int* exit_status) {
  const ParseContext context{
      program,
      std::move(environment),
      job::host_name(),
      job::read_file,
      job::runs_by_itself,
      [&environment = context.environment](const std::string& name) {
        return job::grant_of(environment, name);
      },
      [&environment = context.environment](const spec::DiscoveryRequest& request,
                                           const std::string& name) {
        return job::discover_hosts(environment, request, name);
      },
      job::look_up_hosts,
      [](const std::string& path, const spec::Environment& members, bool several_hosts) {
        const std::uint32_t any = std::numeric_limits<std::uint32_t>::max();
        return job::read_job(path, members, several_hosts ? any : job::count_gpus());
      }};
  if (const auto factor = process::time_limit_factor(context.environment); !factor.ok())
    return factor.status();
  return parse_command_line(args, context, exit_status);
}

spec::Environment read_environment() {
  spec::Environment out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos)
      out.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return out;
}

std::string text_for(const CommandLine& command, const std::string& program,
                     const std::string& version) {
  if (command.verb == Verb::kVersion) return version_text(program, version);
  if (command.verb == Verb::kHelp) return help_text(command.topic);
  if (command.topic == "man") return man_page(version);
  return command.topic == "bash" ? bash_completion() : zsh_completion();
}

std::string help_text() { return help_text(""); }

}  // namespace regroup::cli
