// Agents are the same program at the same path, started in the same folder.
#include "launcher/job/host_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "launcher/agent/control_message.h"
#include "launcher/agent/wire.h"
#include "launcher/job/start.h"
#include "launcher/pmi/wire.h"
#include "launcher/process/environment.h"
#include "launcher/process/time_limit.h"
#include "membership/catchup/transfer_messages.h"
#include "proto/wire.h"

namespace regroup::job {

namespace {

// By the allocator, so that it accounts for what runs there; unless the user knows better.
agent::HostAccess way_of(const spec::Options& options, const spec::HostRequest& host) {
  if (options.by_ssh || options.fork_agents) return {};
  return {options.grant.before, options.grant.after, host.address};
}

}  // namespace

std::string build() {
  return fmt::format("{} (wire {}.{}.{}.{})", REGROUP_VERSION, proto::kWireVersion,
                     agent::kWireVersion, pmi::kWireVersion, catchup::kTransferVersion);
}

base::Result<std::unique_ptr<agent::Hosts>> send_agents(boost::asio::io_context& loop,
                                                        const spec::Options& options,
                                                        const std::string& job, bool with_this) {
  agent::HostsOptions hosts;
  hosts.job = job;
  hosts.build = build();
  for (const spec::HostRequest& host : options.hosts) {
    if (!host.here || with_this)
      hosts.hosts.push_back({host.name, host.here, host.user, way_of(options, host)});
  }
  std::error_code error;
  hosts.program = process::own_program();
  if (!options.agent_prefix.empty()) hosts.preferred = options.agent_prefix + "/bin/regroup";
  hosts.wdir = std::filesystem::current_path(error).string();
  hosts.environment = options.environment;
  hosts.ssh = options.fork_agents ? std::vector<std::string>() : options.ssh_command;
  hosts.verbose = options.verbose;
  // Never less: what answers at once else is here a login on another host.
  hosts.limit = std::max(hosts.limit, process::time_limit(options.environment, hosts.limit));
  // Its command works from here only.
  const bool by_grant = !options.by_ssh && !options.grant.before.empty();
  hosts.radix = by_grant ? 0 : options.tree_radix.value_or(agent::kRadix);
  return agent::Hosts::make(loop, std::move(hosts), [](const std::string& text) { fail(text, 0); });
}

spec::Grant way_to_all(const spec::Options& options) {
  if (options.by_ssh || options.fork_agents) return {};
  return {.by = {},
          .hosts = {},
          .before = options.grant.before,
          .after = options.grant.after,
          .warnings = {}};
}

agent::Setup common_setup(const spec::Options& options) {
  agent::Setup setup;
  setup.output = options.output;
  setup.stdin_to = options.stdin_to;
  setup.verbose = options.verbose;
  setup.quiet = options.quiet;
  setup.memory = options.mapping.memory;
  setup.notice = options.notice;
  setup.claims = process::claim_scope(options.environment, "");
  if (const auto factor = process::time_limit_factor(options.environment); factor.ok())
    setup.time_limit_factor = *factor;
  return setup;
}

BringUp::BringUp(const spec::Options& options, const base::Fd& guardian, base::Duration spent)
    : options_(options), guardian_(guardian.get()), began_(base::SystemClock().now() - spent) {}

bool BringUp::run(agent::Hosts& hosts, std::function<bool()> enough) {
  const auto failures =
      hosts.bring_up({.over = [this] { return look(); },
                      .enough = std::move(enough),
                      .failed = [](const base::Status& why) { fail(why.message(), 0); }});
  return failures.empty();
}

base::Duration BringUp::spent() const { return base::SystemClock().now() - began_; }

bool BringUp::look() {
  const agent::AgentOptions agent = agent_options(options_, {}, {});
  if (agent::end_requested(guardian_))
    over_ = {agent.stopped_status, "the job was stopped while its agents started"};
  else if (options_.timeout.count() > 0 && spent() >= options_.timeout)
    over_ = {agent.timeout_status, agent::ran_too_long(options_.timeout)};
  return over_.has_value();
}

int refuse_job(boost::asio::io_context& loop, const Refusal& refusal, base::Fd guardian) {
  if (!refusal.message.empty()) fail(refusal.message, 0);
  const int fd = guardian.get();
  agent::ControlSocket socket(
      loop, std::move(guardian), [](agent::ControlMessage, std::int32_t, base::Fd) {}, [] {});
  socket.send(agent::ControlMessage::kDone, refusal.exit_status);
  // After kDone: the coordinator ends with the message that carries it.
  agent::discard_control_messages(fd);
  return 0;
}

}  // namespace regroup::job
