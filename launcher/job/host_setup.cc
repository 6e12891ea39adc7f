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
agent::HostAccess way_of(const spec::JobSpec& spec, const spec::HostRequest& host) {
  if (spec.by_ssh || spec.fork_agents) return {};
  return {spec.grant.before, spec.grant.after, host.address};
}

}  // namespace

std::string build() {
  return fmt::format("{} (wire {}.{}.{}.{})", REGROUP_VERSION, proto::kWireVersion,
                     agent::kWireVersion, pmi::kWireVersion, catchup::kTransferVersion);
}

base::Result<std::unique_ptr<agent::Hosts>> send_agents(boost::asio::io_context& loop,
                                                        const spec::JobSpec& spec,
                                                        const std::string& job, bool with_this) {
  agent::HostsOptions hosts;
  hosts.job = job;
  hosts.build = build();
  for (const spec::HostRequest& host : spec.hosts) {
    if (!host.here || with_this)
      hosts.hosts.push_back({host.name, host.here, host.user, way_of(spec, host)});
  }
  std::error_code error;
  hosts.program = process::own_program();
  if (!spec.agent_prefix.empty()) hosts.preferred = spec.agent_prefix + "/bin/regroup";
  hosts.wdir = std::filesystem::current_path(error).string();
  hosts.environment = spec.environment;
  hosts.ssh = spec.fork_agents ? std::vector<std::string>() : spec.ssh_command;
  hosts.verbose = spec.verbose;
  // Never less: what answers at once else is here a login on another host.
  hosts.limit = std::max(hosts.limit, process::time_limit(spec.environment, hosts.limit));
  // Its command works from here only.
  const bool by_grant = !spec.by_ssh && !spec.grant.before.empty();
  hosts.radix = by_grant ? 0 : spec.tree_radix.value_or(agent::kRadix);
  return agent::Hosts::make(loop, std::move(hosts), [](const std::string& text) { fail(text, 0); });
}

spec::Grant way_to_all(const spec::JobSpec& spec) {
  if (spec.by_ssh || spec.fork_agents) return {};
  return {.by = {},
          .hosts = {},
          .before = spec.grant.before,
          .after = spec.grant.after,
          .warnings = {}};
}

agent::Setup common_setup(const spec::JobSpec& spec) {
  agent::Setup setup;
  setup.output = spec.output;
  setup.stdin_to = spec.stdin_to;
  setup.verbose = spec.verbose;
  setup.quiet = spec.quiet;
  setup.memory = spec.mapping.memory;
  setup.notice = spec.notice;
  setup.claims = process::claim_scope(spec.environment, "");
  if (const auto factor = process::time_limit_factor(spec.environment); factor.ok())
    setup.time_limit_factor = *factor;
  return setup;
}

BringUp::BringUp(const spec::JobSpec& spec, const base::Fd& guardian, base::Duration spent)
    : spec_(spec), guardian_(guardian.get()), began_(base::SystemClock().now() - spent) {}

bool BringUp::run(agent::Hosts& hosts, std::function<bool()> enough) {
  const auto failures =
      hosts.bring_up({.over = [this] { return look(); },
                      .enough = std::move(enough),
                      .failed = [](const base::Status& why) { fail(why.message(), 0); }});
  return failures.empty();
}

base::Duration BringUp::spent() const { return base::SystemClock().now() - began_; }

bool BringUp::look() {
  const agent::AgentOptions agent = agent_options(spec_, {}, {});
  if (agent::end_requested(guardian_))
    over_ = {agent.stopped_status, "the job was stopped while its agents started"};
  else if (spec_.timeout.count() > 0 && spent() >= spec_.timeout)
    over_ = {agent.timeout_status, agent::ran_too_long(spec_.timeout)};
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
