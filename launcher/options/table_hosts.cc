// Which hosts, how many slots they have, and how they are reached.
#include <fmt/format.h>

#include "launcher/options/spec.h"
#include "launcher/options/values.h"

namespace regroup::launcher {
namespace {

using core::Status;

// Repeated mentions add slots, in one option and in several.
Status add_hosts(OptionsBuilder& builder, const ParsedArgument& argument) {
  auto hosts = parse_host_list(argument.value(), &builder.app.mentioned);
  if (!hosts.ok()) return bad_value(argument.name, argument.value(), hosts.status().message());
  for (const HostRequest& host : *hosts) add_mention(builder.app.wanted, host);
  return {};
}

// hydra's -hosts: a name without a number has as many slots as cores.
Status set_host_list(OptionsBuilder& builder, const ParsedArgument& argument) {
  auto hosts = parse_host_list(argument.value(), &builder.mentioned);
  if (!hosts.ok()) return bad_value(argument.name, argument.value(), hosts.status().message());
  for (HostRequest& host : *hosts) {
    const bool sized = (argument.value() + ",").find(host.name + ":") != std::string::npos;
    if (!sized && host.slots == 1) host.slots = 0;
    builder.listed.push_back(host);
  }
  return {};
}

Status read_hosts(OptionsBuilder& builder, const ParsedArgument& argument) {
  if (!builder.context.read_file) return bad_value(argument.name, argument.value(), "no file can be read");
  auto text = builder.context.read_file(argument.value());
  if (!text.ok())
    return builder.refuse(kBadHostFile, bad_value(argument.name, argument.value(), text.status().message()));
  auto hosts = parse_host_file(*text, argument.value(), &builder.mentioned);
  if (!hosts.ok()) return builder.refuse(kBadHostFile, hosts.status());
  builder.listed.insert(builder.listed.end(), hosts->begin(), hosts->end());
  return {};
}

Status set_ssh_command(OptionsBuilder& builder, const ParsedArgument& argument) {
  auto words = shell_words(argument.value());
  if (!words.ok()) return bad_value(argument.name, argument.value(), words.status().message());
  if (words->empty()) return bad_value(argument.name, argument.value(), "a command is missing");
  builder.out.ssh_command = std::move(*words);
  builder.out.by_ssh = true;
  return {};
}

// Other words of hydra's name resource managers, whose place -H has taken here.
Status set_way(OptionsBuilder& builder, const ParsedArgument& argument) {
  const std::string way = lower(argument.value());
  builder.out.fork_agents = way == "fork";
  builder.out.by_ssh = way == "ssh" || way == "rsh";
  if (way != "fork" && way != "ssh" && way != "rsh")
    builder.ignored.push_back(fmt::format("{} {}", argument.name, argument.value()));
  return {};
}

Status set_radix(OptionsBuilder& builder, const ParsedArgument& argument) {
  std::uint32_t radix = 0;
  if (!read_number(argument.value(), radix))
    return bad_value(argument.name, argument.value(), "a number is wanted; 0: no tree");
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
       "hosts to run on, or USER@HOST; each mention is a slot",
       add_hosts,
       Scope::kApp,
       kYes},
      {{"hosts", "hostlist", "machines", "machinelist"},
       "HOST[:SLOTS],...",
       "as -H; hydra's word",
       set_host_list},
      {{"hostfile", "machinefile", "machine", "f", "default-hostfile"},
       "FILE",
       "hosts, one a line: h slots=2 max_slots=4 user=me, h:2, or ^h to exclude one",
       read_hosts,
       kJob,
       kYes},
      {{"nolocal"},
       "",
       "no member on this host: needs another one",
       [](OptionsBuilder& d, const ParsedArgument&) { return d.out.mapping.map.no_local = true, Status(); }},
      {{"ssh-command", "rsh-agent", "plm-rsh-agent", "launcher-exec", "bootstrap-exec"},
       "COMMAND",
       "reaches another host when its name is appended (default: ssh)",
       set_ssh_command,
       kJob,
       kYes},
      {{"launcher", "bootstrap"},
       "ssh|fork",
       "how agents are started on other hosts; fork: all on this one, to try things out",
       set_way},
      {{"allocator"},
       "NAME",
       "who has granted hosts: slurm, lsf, pbs, gridengine, flux or kubernetes (default: found out); none: "
       "nobody",
       [](OptionsBuilder& d, const ParsedArgument& g) { return d.out.allocator = g.value(), Status(); }},
      {{"host-discovery-script"},
       "COMMAND",
       "prints HOST or HOST:SLOTS a line, and is run once a second: an elastic job follows it (Horovod's)",
       [](OptionsBuilder& d, const ParsedArgument& g) {
         return d.out.discovery.script = g.value(), Status();
       }},
      {{"slots-per-host"},
       "N",
       "slots of its hosts that come without (default: as many as they have cores)",
       [](OptionsBuilder& d, const ParsedArgument& g) {
         return parse_count(g.name, g.value(), 1, d.out.discovery.slots);
       }},
      {{"tree-radix"},
       "N",
       "agents that are started from here, and by each of them where there are more (default: 64; 0: all "
       "here)",
       set_radix},
  };
}

}  // namespace regroup::launcher
