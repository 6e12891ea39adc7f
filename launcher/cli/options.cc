// The environment is read here and nowhere else in the launcher; files named on the command line too.
#include "launcher/cli/options.h"

#include <unistd.h>

#include <string_view>
#include <utility>

#include "launcher/job/discovery.h"
#include "launcher/job/grant.h"
#include "launcher/job/this_host.h"
#include "launcher/process/time_limit.h"

namespace regroup::cmd {

base::Result<Options> parse_options(const std::vector<std::string>& args, launcher::Environment environment,
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
