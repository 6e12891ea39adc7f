// The command line and the environment of `regroup`: what parse.h reads, with the
// ParseContext of this process.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/cli/parse.h"
#include "launcher/job/option_rules.h"

namespace regroup::cli {

// As parse_command_line() for a process called `program` with this environment, on this host and
// with its files.
[[nodiscard]] base::Result<CommandLine> parse_options(const std::vector<std::string>& args,
                                                      spec::Environment environment,
                                                      const std::string& program = "regroup",
                                                      int* exit_status = nullptr);

// Of this process: the one place where the launcher reads it.
[[nodiscard]] spec::Environment read_environment();

// What --help, --version and --generate print.
[[nodiscard]] std::string text_for(const CommandLine& command, const std::string& program,
                                   const std::string& version);
[[nodiscard]] std::string help_text();

}  // namespace regroup::cli
