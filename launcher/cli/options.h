// The command line and the environment of `regroup`: what launcher/options parses, with the ParseContext of
// this process.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/cli/parse.h"
#include "launcher/job/option_rules.h"

namespace regroup::cmd {

// As launcher::parse_command_line() for a process called `program` with this environment, on this host and
// with its files.
[[nodiscard]] base::Result<Options> parse_options(const std::vector<std::string>& args,
                                                  launcher::Environment environment,
                                                  const std::string& program = "regroup",
                                                  int* exit_status = nullptr);

// Of this process: the one place where the launcher reads it.
[[nodiscard]] launcher::Environment read_environment();

// What --help, --version and --generate print.
[[nodiscard]] std::string text_for(const Options& options, const std::string& program,
                                   const std::string& version);
[[nodiscard]] std::string help_text();

}  // namespace regroup::cmd
