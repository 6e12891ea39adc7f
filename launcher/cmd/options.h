// The command line and the environment of `regroup`: what launcher/options parses, with the ParseContext of
// this process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/status.h"
#include "launcher/options/options.h"

namespace regroup::cmd {

using launcher::Options;
using launcher::Verb;

// As launcher::parse_command_line() for a process called `program` with this environment, on this host and
// with its files.
[[nodiscard]] core::Result<Options> parse_options(const std::vector<std::string>& args,
                                                  launcher::Environment environment,
                                                  const std::string& program = "regroup",
                                                  int* exit_status = nullptr);

using launcher::kHydraFailed;
// Exit status of a command line that cannot be run.
[[nodiscard]] constexpr int refused(launcher::Compat rules) {
  return rules == launcher::Compat::kMpich ? kHydraFailed : 1;
}

// The slots of a host of `slots` cores for this job: what its -H or host file says, if that says any.
[[nodiscard]] std::uint32_t slots_for(const Options& options, std::uint32_t slots);

// What stands in `slots` for a job, unless its -H or host file says how many there are: fills in min, max,
// start, shards and the count of a single app that were not given, and refuses what does not fit.
[[nodiscard]] core::Status fit_to_slots(Options& options, std::uint32_t slots);

// A job of roles, from --role or a job file.
[[nodiscard]] bool has_roles(const Options& options);

// A sentence on options that this job does not heed; "" if there are none.
[[nodiscard]] std::string unheeded_options(const Options& options);

// Of this machine: that by which jobs call it first.
[[nodiscard]] std::vector<std::string> host_names();

// All of a file, or of a pipe; at most 16 MiB.
[[nodiscard]] core::Result<std::string> read_file(const std::string& path);

// Of this process: the one place where the launcher reads it.
[[nodiscard]] launcher::Environment read_environment();

// What --help, --version and --generate print.
[[nodiscard]] std::string text_for(const Options& options, const std::string& program,
                                   const std::string& version);
[[nodiscard]] std::string help_text();

}  // namespace regroup::cmd
