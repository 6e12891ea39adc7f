// Which hosts, how many slots they have, and how they are reached.
#include <fmt/format.h>

#include "base/nearest.h"
#include "base/values.h"
#include "launcher/cli/spec.h"

namespace regroup::cli {
namespace {

using base::Status;

// Repeated mentions add slots, in one option and in several.
Status add_hosts(OptionsBuilder& builder, const ParsedArgument& argument) {
  auto hosts = spec::parse_host_list(argument.value(), &builder.app.mentioned);
  if (!hosts.ok())
    return base::bad_value(argument.name, argument.value(), hosts.status().message());
  for (const spec::HostRequest& host : *hosts) spec::add_mention(builder.app.wanted, host);
  return {};
}

// hydra's -hosts: a name without a number has as many slots as cores.
Status set_host_list(OptionsBuilder& builder, const ParsedArgument& argument) {
  auto hosts = spec::parse_host_list(argument.value(), &builder.mentioned);
  if (!hosts.ok())
    return base::bad_value(argument.name, argument.value(), hosts.status().message());
  for (spec::HostRequest& host : *hosts) {
    const bool sized = (argument.value() + ",").find(host.name + ":") != std::string::npos;
    if (!sized && host.slots == 1) host.slots = 0;
    builder.listed.push_back(host);
  }
  return {};
}

Status read_hosts(OptionsBuilder& builder, const ParsedArgument& argument) {
  if (!builder.context.read_file)
    return base::bad_value(argument.name, argument.value(), "files cannot be read here");
  auto text = builder.context.read_file(argument.value());
  if (!text.ok())
    return builder.refuse(
        kBadHostFile, base::bad_value(argument.name, argument.value(), text.status().message()));
  auto hosts = spec::parse_host_file(*text, argument.value(), &builder.mentioned);
  if (!hosts.ok()) return builder.refuse(kBadHostFile, hosts.status());
  builder.listed.insert(builder.listed.end(), hosts->begin(), hosts->end());
  return {};
}

Status set_ssh_command(OptionsBuilder& builder, const ParsedArgument& argument) {
  auto words = base::shell_words(argument.value());
  if (!words.ok())
    return base::bad_value(argument.name, argument.value(), words.status().message());
  if (words->empty()) return base::bad_value(argument.name, argument.value(), "expected a command");
  builder.out.ssh_command = std::move(*words);
  builder.out.by_ssh = true;
  return {};
}

// Other ways of hydra and Intel MPI to start proxies, mostly those of allocators, whose place -H
// has taken here.
constexpr std::string_view kOthersWays[] = {
    "slurm", "srun",   "ll",   "llspawn", "lsf",    "blaunch", "sge",  "qrsh",
    "pbs",   "pbsdsh", "pdsh", "cobalt",  "manual", "persist", "none", "jmi"};

Status set_way(OptionsBuilder& builder, const ParsedArgument& argument) {
  const std::string way = base::lower(argument.value());
  builder.out.fork_agents = way == "fork";
  builder.out.by_ssh = way == "ssh" || way == "rsh";
  if (way == "fork" || way == "ssh" || way == "rsh") return {};
  if (std::ranges::find(kOthersWays, way) == std::end(kOthersWays)) {
    const std::string near = base::nearest(way, {"ssh", "fork", "rsh"});
    return base::bad_value(
        argument.name, argument.value(),
        fmt::format("expected ssh or fork{}",
                    near.empty() ? "" : fmt::format("; did you mean {}?", near)));
  }
  builder.ignored.push_back(fmt::format("{} {}", argument.name, argument.value()));
  return {};
}

Status set_radix(OptionsBuilder& builder, const ParsedArgument& argument) {
  std::uint32_t radix = 0;
  if (!base::read_number(argument.value(), radix))
    return base::bad_value(argument.name, argument.value(), "expected a whole number; 0: no tree");
  builder.out.tree_radix = radix;
  return {};
}

}  // namespace

std::vector<Spec> host_options() {
  constexpr auto kJob = Scope::kJob;
  constexpr auto kYes = Common::kYes;
  return {
      {{"H", "host"},
       "HOST[:SLOTS],...",
       "hosts to run on, as HOST or USER@HOST; each mention adds a slot",
       add_hosts,
       Scope::kApp,
       kYes},
      {{"hosts", "hostlist", "machines", "machinelist"},
       "HOST[:SLOTS],...",
       "hosts to run on; without :SLOTS, one slot per core (hydra)",
       set_host_list},
      {{"hostfile", "machinefile", "machine", "f", "default-hostfile"},
       "FILE",
       "read hosts from FILE, one per line; h slots=2 max_slots=4 user=me, h:2, or ^h to exclude "
       "host h",
       read_hosts,
       kJob,
       kYes},
      {{"nolocal"},
       "",
       "start no member on this host; requires another host",
       [](OptionsBuilder& d, const ParsedArgument&) {
         return d.out.mapping.map.no_local = true, Status();
       }},
      {{"ssh-command", "rsh-agent", "plm-rsh-agent", "launcher-exec", "bootstrap-exec"},
       "COMMAND",
       "command that runs a program on another host; the host name is appended (default: ssh)",
       set_ssh_command},
      {{"launcher", "bootstrap"},
       "ssh|fork",
       "method to start agents on other hosts; fork: start all of them on this host, for a trial",
       set_way},
      {{"allocator"},
       "NAME",
       "allocator that granted the hosts; slurm, lsf, pbs, gridengine, flux, kubernetes or none "
       "(default: "
       "detected)",
       [](OptionsBuilder& d, const ParsedArgument& g) {
         return d.out.allocator = g.value(), Status();
       }},
      {{"host-discovery-script"},
       "COMMAND",
       "command that prints HOST or HOST:SLOTS, one per line; an elastic job runs it every second "
       "and adapts "
       "(Horovod)",
       [](OptionsBuilder& d, const ParsedArgument& g) {
         return d.out.discovery.script = g.value(), Status();
       }},
      {{"slots-per-host"},
       "N",
       "slots of a host that the discovery script prints without a number (default: its cores)",
       [](OptionsBuilder& d, const ParsedArgument& g) {
         return base::parse_count(g.name, g.value(), 1, d.out.discovery.slots);
       }},
      {{"tree-radix"},
       "N",
       "number of agents that the launcher, and each agent in turn, starts; 0: the launcher starts "
       "all "
       "(default: 64)",
       set_radix},
  };
}

}  // namespace regroup::cli
