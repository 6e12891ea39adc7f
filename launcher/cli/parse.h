// Reads a command line of `regroup` (or of mpirun, mpiexec, mpiexec.hydra, torchrun), and prints
// what the table of options says.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "launcher/cli/command_line.h"
#include "launcher/job/job_file.h"
#include "launcher/spec/hosts.h"
#include "launcher/spec/request.h"

namespace regroup::cli {

// What the parser must know of the machine. Without the functions no file is read.
struct ParseContext {
  std::string program = "regroup";  // argv[0]; its last part chooses the dialect
  spec::Environment environment;
  std::string host_name;  // of this machine
  std::function<base::Result<std::string>(const std::string& path)> read_file;
  std::function<bool(const std::string& path)> is_executable;
  // By the allocator of that name, or any; none: there are no allocators.
  std::function<base::Result<spec::Grant>(const std::string& allocator)> grant;
  // By that script; reached as `allocator` has it.
  std::function<base::Result<spec::Grant>(const spec::DiscoveryRequest& request,
                                          const std::string& allocator)>
      discover;
  // What is known of hosts of which somebody has named `named`; called at most once, where there
  // are some. Without it each host has one name.
  std::function<spec::HostNames(const std::vector<std::string>& named)> look_up = {};
  // Reads a job file, whose programs have that environment besides what the file says.
  std::function<base::Result<job::JobFile>(
      const std::string& path, const spec::Environment& environment, bool several_hosts)>
      read_job;
};

// kInvalidArgument names the option, what is wrong with it and, for an unknown one, the nearest
// there is, or the file, line and field. Whatever the bytes are, it returns. `exit_status`, if any,
// gets that of what is refused, by the rules that were asked for before something was wrong.
[[nodiscard]] base::Result<CommandLine> parse_command_line(const std::vector<std::string>& args,
                                                           const ParseContext& context,
                                                           int* exit_status = nullptr);

// For --help [TOPIC]: the common options, one, those of one group, or all.
[[nodiscard]] std::string help_text(const std::string& topic);
// For --version. Called by a name of MPI's it says whose options it takes: horovodrun looks for
// that.
[[nodiscard]] std::string version_text(const std::string& program, const std::string& version);
// For --generate: the page for man(1), the completion for bash or zsh.
[[nodiscard]] std::string man_page(const std::string& version);
[[nodiscard]] std::string bash_completion();
[[nodiscard]] std::string zsh_completion();

}  // namespace regroup::cli
