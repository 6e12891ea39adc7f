// Which hosts, how many slots they have, and how they are reached.
#include <fmt/format.h>

#include "launcher/options/spec.h"
#include "launcher/options/values.h"

namespace regroup::launcher {
namespace {

using core::Status;

// Repeated mentions add slots, in one option and in several.
Status add_hosts(Draft& draft, const Given& given) {
  auto hosts = parse_host_list(given.value(), &draft.app.mentioned);
  if (!hosts.ok()) return bad_value(given.name, given.value(), hosts.status().message());
  for (const HostRequest& host : *hosts) add_mention(draft.app.wanted, host);
  return {};
}

// hydra's -hosts: a name without a number has as many slots as cores.
Status set_host_list(Draft& draft, const Given& given) {
  auto hosts = parse_host_list(given.value(), &draft.mentioned);
  if (!hosts.ok()) return bad_value(given.name, given.value(), hosts.status().message());
  for (HostRequest& host : *hosts) {
    const bool sized = (given.value() + ",").find(host.name + ":") != std::string::npos;
    if (!sized && host.slots == 1) host.slots = 0;
    draft.listed.push_back(host);
  }
  return {};
}

Status read_hosts(Draft& draft, const Given& given) {
  if (!draft.around.read_file) return bad_value(given.name, given.value(), "no file can be read");
  auto text = draft.around.read_file(given.value());
  if (!text.ok())
    return draft.refuse(kBadHostFile, bad_value(given.name, given.value(), text.status().message()));
  auto hosts = parse_host_file(*text, given.value(), &draft.mentioned);
  if (!hosts.ok()) return draft.refuse(kBadHostFile, hosts.status());
  draft.listed.insert(draft.listed.end(), hosts->begin(), hosts->end());
  return {};
}

Status set_ssh_command(Draft& draft, const Given& given) {
  auto words = shell_words(given.value());
  if (!words.ok()) return bad_value(given.name, given.value(), words.status().message());
  if (words->empty()) return bad_value(given.name, given.value(), "a command is missing");
  draft.out.ssh_command = std::move(*words);
  draft.out.by_ssh = true;
  return {};
}

// Other words of hydra's name resource managers, whose place -H has taken here.
Status set_way(Draft& draft, const Given& given) {
  const std::string way = lower(given.value());
  draft.out.fork_agents = way == "fork";
  draft.out.by_ssh = way == "ssh" || way == "rsh";
  if (way != "fork" && way != "ssh" && way != "rsh")
    draft.ignored.push_back(fmt::format("{} {}", given.name, given.value()));
  return {};
}

Status set_radix(Draft& draft, const Given& given) {
  std::uint32_t radix = 0;
  if (!read_number(given.value(), radix))
    return bad_value(given.name, given.value(), "a number is wanted; 0: no tree");
  draft.out.tree_radix = radix;
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
       [](Draft& d, const Given&) { return d.out.mapping.map.no_local = true, Status(); }},
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
       [](Draft& d, const Given& g) { return d.out.allocator = g.value(), Status(); }},
      {{"host-discovery-script"},
       "COMMAND",
       "prints HOST or HOST:SLOTS a line, and is run once a second: an elastic job follows it (Horovod's)",
       [](Draft& d, const Given& g) { return d.out.discovery.script = g.value(), Status(); }},
      {{"slots-per-host"},
       "N",
       "slots of its hosts that come without (default: as many as they have cores)",
       [](Draft& d, const Given& g) { return parse_count(g.name, g.value(), 1, d.out.discovery.slots); }},
      {{"tree-radix"},
       "N",
       "agents that are started from here, and by each of them where there are more (default: 64; 0: all "
       "here)",
       set_radix},
  };
}

}  // namespace regroup::launcher
