// Agents are the same program at the same path, started in the same folder.
#include "launcher/cmd/host_setup.h"

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "launcher/cmd/start.h"
#include "launcher/supervise/words.h"

namespace regroup::cmd {

core::Result<std::unique_ptr<node::Hosts>> send_agents(boost::asio::io_context& loop, const Options& options,
                                                       const std::string& job, bool with_this) {
  node::HostsOptions hosts;
  hosts.job = job;
  hosts.version = REGROUP_VERSION;
  for (const launcher::HostRequest& host : options.hosts) {
    if (!host.here || with_this) hosts.hosts.push_back({host.name, host.here, host.user});
  }
  std::error_code error;
  hosts.program = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (!options.agent_prefix.empty()) hosts.preferred = options.agent_prefix + "/bin/regroup";
  hosts.wdir = std::filesystem::current_path(error).string();
  hosts.environment = options.environment;
  hosts.ssh = options.fork_agents ? std::vector<std::string>() : options.ssh_command;
  hosts.verbose = options.verbose;
  // An elastic job loses no more than the host that is lost: all of its agents are the head's own.
  hosts.radix = with_this ? 0 : options.tree_radix.value_or(node::kRadix);
  return node::Hosts::make(loop, std::move(hosts), [](const std::string& text) { fail(text, 0); });
}

node::Setup common_setup(const Options& options) {
  node::Setup setup;
  setup.output = options.output;
  setup.stdin_to = options.stdin_to;
  setup.verbose = options.verbose;
  setup.quiet = options.quiet;
  return setup;
}

int refuse_job(boost::asio::io_context& loop, const Refusal& refusal, core::Fd guardian) {
  fail(refusal.message, 0);
  launcher::WordSocket words(
      loop, std::move(guardian), [](launcher::Word, std::int32_t, core::Fd) {}, [] {});
  words.send(launcher::Word::kDone, refusal.exit_status);
  return 0;
}

}  // namespace regroup::cmd
