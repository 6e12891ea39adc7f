// From the options as they stand on the command line to a job that can be started.
#pragma once

#include "base/status.h"
#include "launcher/cli/spec.h"

namespace regroup::cli {

// Completes builder.out from builder.done: environments, counts, roles, job file, hosts, programs
// run by python3.
[[nodiscard]] base::Status finish(OptionsBuilder& builder);

// Of builder.listed and every app's -H: builder.out.hosts.
[[nodiscard]] base::Status resolve_hosts(OptionsBuilder& builder);
// Once members are counted: leaves out those that are not needed.
[[nodiscard]] base::Status choose_hosts(OptionsBuilder& builder);

// Where a list gives each member its place (seq, rank files), or hydra counts one: as many members
// as it has, unless -np says fewer. Needs the counts and the hosts.
[[nodiscard]] base::Status count_by_lists(OptionsBuilder& builder);

// What parameters of Open MPI's launcher ask for, where no option says otherwise.
[[nodiscard]] base::Status apply_parameters(OptionsBuilder& builder);

// What an app's members find: `base` as far as it is passed on, changed by the job's and the app's
// changes.
[[nodiscard]] spec::Environment app_environment(const OptionsBuilder& builder,
                                                const AppBuilder& app);

// A job with its options and programs, or kHelp, kVersion, kGenerate; `exit_status` as of
// parse_command_line().
[[nodiscard]] base::Result<CommandLine> parse_job(const std::vector<std::string>& args,
                                                  const ParseContext& context, spec::Compat compat,
                                                  int& exit_status);

}  // namespace regroup::cli
