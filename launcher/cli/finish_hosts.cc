// Hosts by their names. This one may be called by any of its own.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "base/printable.h"
#include "base/status.h"
#include "base/values.h"
#include "launcher/cli/finish.h"

namespace regroup::cli {
namespace {

using base::invalid_argument;
using base::Status;

std::string own_name(const ParseContext& context) {
  return context.host_name.empty() ? "localhost" : context.host_name;
}

// Whether the first hosts of a list do, those after this one being spare: members fill a host
// before the next, unless GPUs decide.
bool fits_here(const spec::JobSpec& options, const spec::HostRequest& local) {
  const spec::MapBy& map = options.mapping.map;
  if (!options.hosts_of_apps.empty()) return false;
  if (options.mapping.packing || options.mapping.gpus > 0) return false;
  const bool by_host = map.kind != spec::MapBy::Kind::kDefault &&
                       map.kind != spec::MapBy::Kind::kSlot && map.kind != spec::MapBy::Kind::kUnit;
  const bool over_nodes = map.kind == spec::MapBy::Kind::kUnit && map.unit == spec::Unit::kNode;
  const bool per_node = std::any_of(options.apps.begin(), options.apps.end(),
                                    [](const auto& app) { return app.per_node; });
  const std::size_t listed = options.mapping.cpu_set.size();  // without a mapping one for each
  const bool more_than_list =
      map.kind == spec::MapBy::Kind::kDefault && listed != 0 && options.max > listed;
  return !by_host && !over_nodes && !per_node && !map.span && !more_than_list && options.max != 0 &&
         local.slots != 0 && options.max <= local.slots;
}

// Of the only program, where -np says nothing.
void set_count(spec::JobSpec& out, std::uint32_t count) {
  if (out.apps.size() == 1) out.apps[0].count = out.min = out.max = count;
}

base::Result<std::string> read_mapping_file(OptionsBuilder& builder, const std::string& path) {
  auto text = builder.context.read_file ? builder.context.read_file(path)
                                        : invalid_argument("files cannot be read here");
  if (text.ok()) return text;
  return builder.refuse(kBadMapFile,
                        invalid_argument(fmt::format("{}: {}", path, text.status().message())));
}

// --map-by seq: each mention of a host takes one member. They stand in a file of its own, in the
// host file or in -H.
Status take_sequence(OptionsBuilder& builder) {
  spec::Mapping& mapping = builder.out.mapping;
  std::vector<std::string> hosts = std::move(builder.mentioned);
  if (const std::string& path = mapping.map.file; !path.empty()) {
    REGROUP_ASSIGN_OR_RETURN(auto text, read_mapping_file(builder, path));
    hosts.clear();
    auto listed = spec::parse_host_file(text, path, &hosts);
    if (!listed.ok()) return builder.refuse(kBadMapFile, listed.status());
    if (builder.listed.empty()) builder.listed = std::move(*listed);
  }
  for (const AppBuilder& app : builder.done) {
    if (builder.listed.empty())
      hosts.insert(hosts.end(), app.mentioned.begin(), app.mentioned.end());
  }
  mapping.sequence = std::move(hosts);
  return {};
}

Status take_rank_file(OptionsBuilder& builder) {
  spec::Mapping& mapping = builder.out.mapping;
  const std::string& path = mapping.map.file;
  if (path.empty())
    return builder.refuse(kContradicts, invalid_argument("--map-by rankfile: expected :FILE=PATH"));
  REGROUP_ASSIGN_OR_RETURN(auto text, read_mapping_file(builder, path));
  auto places = spec::parse_rank_file(text, path);
  if (!places.ok()) return builder.refuse(kBadMapFile, places.status());
  mapping.ranks = std::move(*places);
  return {};
}

// A rank file gives no host more ranks than its slots, or than its max_slots.
Status check_rank_counts(const OptionsBuilder& builder, std::size_t ranks) {
  const spec::JobSpec& out = builder.out;
  std::map<std::string, std::uint32_t> counts;
  for (std::size_t i = 0; i < std::min(ranks, out.mapping.ranks.size()); ++i)
    ++counts[out.mapping.ranks[i].host];
  for (const spec::HostRequest& host : out.hosts) {
    const auto found = counts.find(host.name);
    const std::uint32_t count = found == counts.end() ? 0 : found->second;
    if (host.slots != 0 && count > host.slots && !out.oversubscribe) {
      return invalid_argument(
          fmt::format("{}: {} on host {}, expected at most {} (slots); --oversubscribe allows more",
                      out.mapping.map.file, base::counted(count, "rank"), host.name, host.slots));
    }
    if (host.max_slots != 0 && count > host.max_slots) {
      return invalid_argument(fmt::format("{}: {} on host {}, expected at most {} (max_slots)",
                                          out.mapping.map.file, base::counted(count, "rank"),
                                          host.name, host.max_slots));
    }
  }
  return {};
}

// Agents go to the hosts of -H and the host file only.
Status check_rank_hosts(const OptionsBuilder& builder) {
  const spec::JobSpec& out = builder.out;
  for (const spec::RankPlace& place : out.mapping.ranks) {
    const bool known =
        std::any_of(out.hosts.begin(), out.hosts.end(),
                    [&](const spec::HostRequest& host) { return host.name == place.host; });
    if (known || (out.hosts.empty() && place.host == own_name(builder.context))) continue;
    return invalid_argument(fmt::format("{}: rank {}: host {} is not in -H or --hostfile",
                                        out.mapping.map.file, place.rank, place.host));
  }
  return {};
}

// With a host file each host of -H has a slot for each mention, or those of ":N", as under mpirun.
// A job that needs more keeps those of the file. `hosts`: what filter_hosts() made of `wanted`.
void prefer_slots_of_mentions(const OptionsBuilder& builder,
                              const std::vector<spec::HostRequest>& wanted,
                              std::vector<spec::HostRequest>& hosts) {
  using Map = spec::MapBy::Kind;
  if (builder.mpich() || builder.out.elastic || builder.listed.empty() || wanted.empty()) return;
  // These say how many members a host gets.
  const Map map = builder.out.mapping.map.kind;
  if (map == Map::kPerUnit || map == Map::kRankFile) return;
  std::uint64_t slots = 0;
  std::uint64_t members = 0;
  for (const spec::HostRequest& host : wanted) {
    if (host.slots == 0) return;  // ":*"
    slots += host.slots;
  }
  for (const spec::AppRequest& app : builder.out.apps) {
    if (app.per_node) return;
    members += app.count.value_or(0);
  }
  if (members > slots) return;
  for (std::size_t i = 0; i < wanted.size(); ++i) hosts[i].slots = wanted[i].slots;
}

// Where the first program has no -H but a later one has, those without take the hosts of -H in the
// order of the host file, as under mpirun.
std::vector<spec::HostRequest> in_order_of_file(const OptionsBuilder& builder,
                                                const std::vector<spec::HostRequest>& hosts) {
  const bool chosen =
      std::ranges::any_of(builder.done, [](const auto& app) { return !app.wanted.empty(); });
  if (builder.mpich() || builder.listed.empty() || !chosen || !builder.done.front().wanted.empty())
    return hosts;
  std::vector<spec::HostRequest> out;
  for (const spec::HostRequest& listed : builder.listed) {
    const auto same = std::ranges::find(hosts, listed.name, &spec::HostRequest::name);
    if (same != hosts.end()) out.push_back(*same);
  }
  std::ranges::copy_if(hosts, std::back_inserter(out), [&](const spec::HostRequest& host) {
    return std::ranges::find(builder.listed, host.name, &spec::HostRequest::name) ==
           builder.listed.end();
  });
  return out;
}

// Whatever was granted is used; -H and host files choose among it.
Status read_grant(OptionsBuilder& builder) {
  spec::JobSpec& out = builder.out;
  const bool discovered = !out.discovery.script.empty();
  const bool chosen =
      !builder.listed.empty() ||
      std::ranges::any_of(builder.done, [](const auto& app) { return !app.wanted.empty(); });
  if (discovered && chosen)
    return invalid_argument("--host-discovery-script: cannot be combined with -H or --hostfile");
  if (discovered ? !builder.context.discover : !builder.context.grant) return {};
  REGROUP_ASSIGN_OR_RETURN(out.grant, discovered
                                          ? builder.context.discover(out.discovery, out.allocator)
                                          : builder.context.grant(out.allocator));
  out.notes.insert(out.notes.end(), out.grant.warnings.begin(), out.grant.warnings.end());
  return {};
}

// All names that options, files and the allocator have for hosts. Those of a grant that knows which
// of its hosts is this one need no look-up.
std::vector<std::string> named_hosts(const OptionsBuilder& builder) {
  const spec::Grant& grant = builder.out.grant;
  const spec::Mapping& mapping = builder.out.mapping;
  std::vector<std::string> names = mapping.sequence;
  const auto add = [&](const std::vector<spec::HostRequest>& hosts) {
    for (const spec::HostRequest& host : hosts) names.push_back(host.name);
  };
  for (const spec::RankPlace& place : mapping.ranks) names.push_back(place.host);
  add(builder.listed);
  for (const AppBuilder& app : builder.done) add(app.wanted);
  const bool knows = std::ranges::any_of(grant.hosts, [](const auto& host) { return host.here; });
  std::set<std::string> granted;
  for (const spec::HostRequest& host : grant.hosts) granted.insert(spec::host_key(host.name));
  std::erase_if(names, [&](const std::string& name) {
    return name.starts_with('+') || granted.contains(spec::host_key(name));
  });
  if (!knows) add(grant.hosts);
  return names;
}

void look_up_names(OptionsBuilder& builder) {
  builder.names.own = {own_name(builder.context)};
  const std::vector<std::string> named = named_hosts(builder);
  if (builder.context.look_up && !named.empty()) builder.names = builder.context.look_up(named);
  spec::mark_here(builder.names.own, builder.out.grant.hosts);
  spec::Mapping& mapping = builder.out.mapping;
  const auto call_by_own_name = [&](std::string& name) {
    if (spec::is_this_host(builder.names.own, name)) name = own_name(builder.context);
  };
  for (std::string& host : mapping.sequence) call_by_own_name(host);
  for (spec::RankPlace& place : mapping.ranks) call_by_own_name(place.host);
}

Status choose_among_grant(OptionsBuilder& builder) {
  spec::JobSpec& out = builder.out;
  if (out.grant.by.empty()) return {};
  REGROUP_ASSIGN_OR_RETURN(out.hosts, spec::within_grant(out.grant, out.hosts, out.oversubscribe,
                                                         builder.names.aliases));
  if (out.discovery.script.empty())
    std::erase_if(out.hosts, [](const spec::HostRequest& host) { return host.slots == 0; });
  return {};
}

// What relative hosts count from: the host file, else what was granted, else this host.
std::vector<spec::HostRequest> base_of(const OptionsBuilder& builder) {
  if (!builder.listed.empty()) return builder.listed;
  if (!builder.out.grant.hosts.empty()) return builder.out.grant.hosts;
  return {{.name = own_name(builder.context), .here = true}};
}

base::Result<std::vector<spec::HostRequest>> absolute(const OptionsBuilder& builder,
                                                      const std::vector<spec::HostRequest>& hosts,
                                                      const std::vector<spec::HostRequest>& base) {
  const auto& [own, aliases] = builder.names;
  REGROUP_ASSIGN_OR_RETURN(auto found, spec::resolve_relative(hosts, base, own, aliases));
  return spec::by_one_name(own, found, aliases);
}

// The same for the hosts of a rank file and of --map-by seq, which then have the names of
// `out.hosts`.
Status name_places(OptionsBuilder& builder, const std::vector<spec::HostRequest>& base) {
  spec::Mapping& mapping = builder.out.mapping;
  std::vector<std::string> sequence;
  for (std::string& host : mapping.sequence) {
    if (!host.starts_with('+')) {
      sequence.push_back(std::move(host));
      continue;
    }
    auto found = absolute(builder, {{.name = host}}, base);
    if (!found.ok()) return builder.refuse(kBadMapFile, found.status());
    for (const spec::HostRequest& each : *found) sequence.push_back(each.name);
  }
  mapping.sequence = std::move(sequence);
  for (spec::RankPlace& place : mapping.ranks) {
    if (!place.host.starts_with('+')) continue;
    auto found = absolute(builder, {{.name = place.host}}, base);
    if (!found.ok()) return builder.refuse(kBadMapFile, found.status());
    place.host = (*found)[0].name;
  }
  std::vector<std::string*> names;
  for (spec::RankPlace& place : mapping.ranks) names.push_back(&place.host);
  for (std::string& host : mapping.sequence) names.push_back(&host);
  spec::spell_as(builder.out.hosts, builder.names.own, builder.names.aliases, names);
  return {};
}

// Of all hosts; the greatest number where one has as many as cores.
std::uint32_t known_slots(const std::vector<spec::HostRequest>& hosts) {
  std::uint32_t sum = 0;
  for (const spec::HostRequest& host : hosts) {
    if (host.slots == 0) return ~std::uint32_t{0};
    sum += host.slots;
  }
  return hosts.empty() ? ~std::uint32_t{0} : sum;
}

// -H of one of several programs limits that program.
Status limit_programs(OptionsBuilder& builder, const std::vector<spec::HostRequest>& base) {
  spec::JobSpec& out = builder.out;
  const bool limited =
      std::ranges::any_of(builder.done, [](const auto& app) { return !app.wanted.empty(); });
  if (!limited || out.apps.size() < 2 || out.apps.size() != builder.done.size()) return {};
  for (const AppBuilder& app : builder.done) {
    REGROUP_ASSIGN_OR_RETURN(auto wanted, absolute(builder, app.wanted, base));
    std::vector<std::string>& names = out.hosts_of_apps.emplace_back();
    for (spec::HostRequest& host : wanted) names.push_back(std::move(host.name));
    std::vector<std::string*> spelled;
    for (std::string& name : names) spelled.push_back(&name);
    spec::spell_as(out.hosts, builder.names.own, builder.names.aliases, spelled);
  }
  return {};
}

}  // namespace

Status resolve_hosts(OptionsBuilder& builder) {
  spec::JobSpec& out = builder.out;
  const spec::MapBy::Kind map = out.mapping.map.kind;
  Status taken;
  if (map == spec::MapBy::Kind::kSequence) taken = take_sequence(builder);
  if (map == spec::MapBy::Kind::kRankFile) taken = take_rank_file(builder);
  if (!taken.ok()) return taken;
  REGROUP_RETURN_IF_ERROR(read_grant(builder));
  look_up_names(builder);
  std::vector<spec::HostRequest> named = builder.listed;
  auto listed = absolute(builder, builder.listed, out.grant.hosts);
  if (!listed.ok()) return builder.refuse(kBadHostFile, listed.status());
  builder.listed = std::move(*listed);
  const std::vector<spec::HostRequest> base = base_of(builder);
  std::vector<spec::HostRequest> wanted;
  for (const AppBuilder& app : builder.done) {
    std::copy(app.wanted.begin(), app.wanted.end(), std::back_inserter(wanted));
  }
  named.insert(named.end(), wanted.begin(), wanted.end());
  if (std::string note = spec::unlike_names(builder.names.own, named); !note.empty())
    out.notes.push_back(std::move(note));
  auto chosen = absolute(builder, wanted, base);
  if (!chosen.ok()) return builder.refuse(kContradicts, chosen.status());
  if (std::string note = spec::unlisted_hosts(builder.listed, *chosen, builder.names.aliases);
      !note.empty())
    out.notes.push_back(std::move(note));
  REGROUP_ASSIGN_OR_RETURN(out.hosts,
                           spec::filter_hosts(builder.listed, *chosen, builder.names.aliases));
  prefer_slots_of_mentions(builder, *chosen, out.hosts);
  out.hosts = in_order_of_file(builder, out.hosts);
  if (builder.mpich() && !out.elastic &&
      out.grant.by.empty()) {  // hydra counts mentions, not cores
    for (spec::HostRequest& host : out.hosts) host.slots = std::max(1U, host.slots);
  }
  if (Status status = spec::drop_without_slots(out.hosts, out.oversubscribe); !status.ok())
    return builder.refuse(kContradicts, status);
  REGROUP_RETURN_IF_ERROR(choose_among_grant(builder));
  REGROUP_RETURN_IF_ERROR(name_places(builder, base));
  REGROUP_RETURN_IF_ERROR(limit_programs(builder, base));
  if (map == spec::MapBy::Kind::kRankFile) REGROUP_RETURN_IF_ERROR(check_rank_hosts(builder));
  if (!out.mapping.map.no_local) return {};
  std::erase_if(out.hosts, [](const spec::HostRequest& host) { return host.here; });
  if (!out.hosts.empty()) return {};
  return invalid_argument(fmt::format(
      "nolocal: excludes this host ({}), and no other host is given", own_name(builder.context)));
}

// Hosts that nobody needs now are kept for those who come later.
bool may_grow(const spec::JobSpec& out) {
  const bool followed = !out.discovery.script.empty();
  const bool fits = !followed && out.hosts.size() == 1 && fits_here(out, out.hosts[0]);
  return out.elastic && !out.grant.by.empty() && !fits;
}

Status choose_hosts(OptionsBuilder& builder) {
  spec::JobSpec& out = builder.out;
  out.growable = may_grow(out);
  if (!out.several_hosts() || out.growable) return {};
  const auto other =
      std::find_if(out.hosts.begin(), out.hosts.end(), [](const auto& host) { return !host.here; });
  if (out.hosts[0].here && fits_here(out, out.hosts[0])) {
    std::vector<std::string> spare;
    for (auto host = out.hosts.begin() + 1; host != out.hosts.end(); ++host)
      spare.push_back(host->name);
    out.hosts.resize(1);
    if (out.grant.by.empty())
      out.notes.push_back(fmt::format("not needed and not used: host {}", fmt::join(spare, ", ")));
    return {};
  }
  const char* what = nullptr;
  if (out.elastic && out.stdin_to.to == spec::StdinRequest::To::kAll)
    what = "--stdin all of an elastic job";
  if (what == nullptr) return {};
  return invalid_argument(
      fmt::format("host {}: {} is not supported on several hosts (this one is {})", other->name,
                  what, own_name(builder.context)));
}

Status count_by_lists(OptionsBuilder& builder) {
  spec::JobSpec& out = builder.out;
  const spec::Mapping& mapping = out.mapping;
  const bool in_sequence = mapping.map.kind == spec::MapBy::Kind::kSequence;
  if (out.max == 0 && in_sequence)
    set_count(out, static_cast<std::uint32_t>(mapping.sequence.size()));
  if (out.max == 0 && mapping.map.kind == spec::MapBy::Kind::kRankFile)
    set_count(out, static_cast<std::uint32_t>(mapping.ranks.size()));
  const bool by_set = mapping.map.kind == spec::MapBy::Kind::kDefault;
  const std::vector<std::uint32_t>& listed = by_set ? mapping.cpu_set : mapping.map.cpu_list;
  if (out.max == 0 && !builder.mpich() && !listed.empty())
    set_count(out, std::min(static_cast<std::uint32_t>(listed.size()), known_slots(out.hosts)));
  if (out.max == 0 && builder.mpich())  // hydra counts mentions, not cores
    set_count(out, std::accumulate(out.hosts.begin(), out.hosts.end(), out.hosts.empty() ? 1U : 0U,
                                   [](std::uint32_t sum, const auto& host) {
                                     return sum + std::max(1U, host.slots);
                                   }));
  if (in_sequence && (mapping.sequence.empty() || mapping.sequence.size() < out.max)) {
    return builder.refuse(kContradicts,
                          invalid_argument(fmt::format(
                              "--map-by seq: expected one host per member in --hostfile, -H or "
                              "seq:FILE=PATH; got {} and {}",
                              out.max == 0 ? "all members" : base::counted(out.max, "member"),
                              base::counted(mapping.sequence.size(), "host"))));
  }
  if (mapping.map.kind != spec::MapBy::Kind::kRankFile) return {};
  if (out.max <= mapping.ranks.size()) {
    const std::size_t ranks = out.max == 0 ? mapping.ranks.size() : out.max;
    Status fits = check_rank_counts(builder, ranks);
    return fits.ok() ? fits : builder.refuse(kContradicts, fits);
  }
  return builder.refuse(
      kContradicts,
      invalid_argument(fmt::format("{}: got {}, expected one for each of {}", mapping.map.file,
                                   base::counted(mapping.ranks.size(), "rank"),
                                   base::counted(out.max, "member"))));
}

}  // namespace regroup::cli
