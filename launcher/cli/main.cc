// The command `regroup`.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/printable.h"
#include "launcher/cli/allocation.h"
#include "launcher/cli/bench.h"
#include "launcher/cli/control.h"
#include "launcher/cli/doctor.h"
#include "launcher/cli/help.h"
#include "launcher/cli/helper.h"
#include "launcher/cli/join.h"
#include "launcher/cli/node_agent.h"
#include "launcher/cli/options.h"
#include "launcher/cli/place.h"
#include "launcher/cli/top.h"
#include "launcher/cli/topo.h"
#include "launcher/job/run.h"
#include "launcher/process/signals.h"

namespace {

// A descriptor 0, 1 or 2 that is closed would be taken by the next file opened.
void open_standard_descriptors() {
  for (int fd = ::open("/dev/null", O_RDWR); fd >= 0; fd = ::open("/dev/null", O_RDWR)) {
    if (fd > STDERR_FILENO) {
      ::close(fd);
      return;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_descriptors();
  const std::string program = argc > 0 ? argv[0] : "regroup";
  const std::vector<std::string> args(argv + std::min(argc, 1), argv + argc);
  if (!args.empty() && args[0] == regroup::cli::kNodeAgent) {
    regroup::process::block_signals();
    return regroup::cli::run_node_agent({args.begin() + 1, args.end()});
  }
  int refused = 1;
  auto command =
      regroup::cli::parse_options(args, regroup::cli::read_environment(), program, &refused);
  if (!command.ok()) {
    const auto commands = regroup::cli::command_names();
    const bool known = !args.empty() && std::ranges::find(commands, args[0]) != commands.end();
    fmt::print(stderr, "regroup: {}\nTry regroup {}--help.\n",
               regroup::base::escaped_lines(command.status().message()),
               known ? args[0] + " " : "");
    return refused;
  }
  switch (command->verb) {
    case regroup::cli::Verb::kHelp:
    case regroup::cli::Verb::kVersion:
    case regroup::cli::Verb::kGenerate:
      fmt::print("{}", regroup::cli::text_for(*command, program, REGROUP_VERSION));
      return 0;
    case regroup::cli::Verb::kRun:
      regroup::process::block_signals();
      return regroup::job::run_job(command->job);
    case regroup::cli::Verb::kBench:
      return regroup::cli::run_bench(*command);
    case regroup::cli::Verb::kCheckpoint:
      return regroup::cli::become_helper("checkpoint", command->words, command->environment);
    case regroup::cli::Verb::kLedger:
      return regroup::cli::become_helper("ledger", command->words, command->environment);
    case regroup::cli::Verb::kPlace:
      return regroup::cli::run_place(command->words);
    case regroup::cli::Verb::kTop:
      return regroup::cli::run_top(*command);
    case regroup::cli::Verb::kTopo:
      return regroup::cli::run_topo(command->words, command->environment);
    case regroup::cli::Verb::kAllocation:
      return regroup::cli::run_allocation(*command);
    case regroup::cli::Verb::kDoctor:
      return regroup::cli::run_doctor(*command);
    case regroup::cli::Verb::kJoin:
      regroup::process::block_signals();
      return regroup::cli::run_join(*command);
    default:
      return regroup::cli::run_control(*command);
  }
}
