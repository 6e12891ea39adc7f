// Hosts by their names. This one may be called by any of its own.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "launcher/options/finish.h"
#include "launcher/options/values.h"

namespace regroup::launcher {
namespace {

using core::invalid_argument;
using core::Status;

bool is_local(const Surroundings& around, const std::string& given) {
  const std::string name = lower(given);
  if (name == "localhost" || name.starts_with("localhost.") || name.starts_with("127.") || name == "::1" ||
      name == "+n0") {
    return true;
  }
  const bool address = name.find_first_not_of("0123456789.") == std::string::npos;
  return std::any_of(around.host_names.begin(), around.host_names.end(), [&](const std::string& known) {
    const std::string mine = lower(known);
    if (mine == name) return true;
    const bool one_is_short = (mine.find('.') == std::string::npos) != (name.find('.') == std::string::npos);
    return !address && one_is_short && mine.substr(0, mine.find('.')) == name.substr(0, name.find('.'));
  });
}

std::string own_name(const Surroundings& around) {
  return around.host_names.empty() ? "localhost" : around.host_names[0];
}

// All names of this host become one; slots add up.
std::vector<HostRequest> by_one_name(const Surroundings& around, const std::vector<HostRequest>& hosts) {
  std::vector<HostRequest> out;
  for (HostRequest host : hosts) {
    host.here = is_local(around, host.name);
    if (host.here) host.name = own_name(around);
    const auto known =
        std::find_if(out.begin(), out.end(), [&](const auto& each) { return each.name == host.name; });
    if (known == out.end()) {
      out.push_back(host);
    } else {
      if (known->user.empty()) known->user = host.user;
      known->slots = known->slots == 0 || host.slots == 0 ? 0 : known->slots + host.slots;
      known->max_slots = std::max(known->max_slots, host.max_slots);
    }
  }
  return out;
}

// Whether the first hosts of a list do, those after this one being spare: members fill a host before the
// next.
bool fits_here(const Options& options, const HostRequest& local) {
  const MapBy& map = options.mapping.map;
  const bool by_host =
      map.kind != MapBy::Kind::kDefault && map.kind != MapBy::Kind::kSlot && map.kind != MapBy::Kind::kUnit;
  const bool over_nodes = map.kind == MapBy::Kind::kUnit && map.unit == Unit::kNode;
  const bool per_node =
      std::any_of(options.apps.begin(), options.apps.end(), [](const auto& app) { return app.per_node; });
  return !by_host && !over_nodes && !per_node && !map.span && options.max != 0 && local.slots != 0 &&
         options.max <= local.slots;
}

// Of the only program, where -np says nothing.
void set_count(Options& out, std::uint32_t count) {
  if (out.apps.size() == 1) out.apps[0].count = out.min = out.max = count;
}

core::Result<std::string> read_mapping_file(Draft& draft, const std::string& path) {
  auto text = draft.around.read_file ? draft.around.read_file(path) : invalid_argument("no file can be read");
  if (text.ok()) return text;
  return draft.refuse(kBadMapFile, invalid_argument(fmt::format("{}: {}", path, text.status().message())));
}

// --map-by seq: each mention of a host takes one member. They stand in a file of its own, in the host file or
// in -H.
Status take_sequence(Draft& draft) {
  Mapping& mapping = draft.out.mapping;
  std::vector<std::string> hosts = std::move(draft.mentioned);
  if (const std::string& path = mapping.map.file; !path.empty()) {
    auto text = read_mapping_file(draft, path);
    if (!text.ok()) return text.status();
    hosts.clear();
    auto listed = parse_host_file(*text, path, &hosts);
    if (!listed.ok()) return draft.refuse(kBadMapFile, listed.status());
    if (draft.listed.empty()) draft.listed = std::move(*listed);
  }
  for (const AppDraft& app : draft.done) {
    if (draft.listed.empty()) hosts.insert(hosts.end(), app.mentioned.begin(), app.mentioned.end());
  }
  for (std::string& host : hosts) {
    if (is_local(draft.around, host)) host = own_name(draft.around);
  }
  mapping.sequence = std::move(hosts);
  return {};
}

Status take_rank_file(Draft& draft) {
  Mapping& mapping = draft.out.mapping;
  const std::string& path = mapping.map.file;
  if (path.empty())
    return draft.refuse(kContradicts, invalid_argument("--map-by rankfile: it needs FILE=PATH"));
  auto text = read_mapping_file(draft, path);
  if (!text.ok()) return text.status();
  auto places = parse_rank_file(*text, path);
  if (!places.ok()) return draft.refuse(kBadMapFile, places.status());
  for (RankPlace& place : *places) {
    if (!is_local(draft.around, place.host)) {
      return invalid_argument(fmt::format("{}: host {}: several hosts: not yet; this one is {}", path,
                                          place.host, own_name(draft.around)));
    }
    place.host = own_name(draft.around);
  }
  mapping.ranks = std::move(*places);
  return {};
}

}  // namespace

Status resolve_hosts(Draft& draft) {
  Options& out = draft.out;
  const MapBy::Kind map = out.mapping.map.kind;
  Status taken;
  if (map == MapBy::Kind::kSequence) taken = take_sequence(draft);
  if (map == MapBy::Kind::kRankFile) taken = take_rank_file(draft);
  if (!taken.ok()) return taken;
  std::vector<HostRequest> wanted;
  for (const AppDraft& app : draft.done) {
    std::copy(app.wanted.begin(), app.wanted.end(), std::back_inserter(wanted));
  }
  auto hosts = filter_hosts(by_one_name(draft.around, draft.listed), by_one_name(draft.around, wanted));
  if (!hosts.ok()) return hosts.status();
  out.hosts = std::move(*hosts);
  if (!out.mapping.map.no_local) return {};
  std::erase_if(out.hosts, [](const HostRequest& host) { return host.here; });
  if (!out.hosts.empty()) return {};
  return invalid_argument(fmt::format("nolocal: no member may run on this host ({}), and no other is given",
                                      own_name(draft.around)));
}

Status choose_hosts(Draft& draft) {
  Options& out = draft.out;
  if (!out.several_hosts()) return {};
  const auto other =
      std::find_if(out.hosts.begin(), out.hosts.end(), [](const auto& host) { return !host.here; });
  if (out.hosts[0].here && fits_here(out, out.hosts[0])) {
    std::vector<std::string> spare;
    for (auto host = out.hosts.begin() + 1; host != out.hosts.end(); ++host) spare.push_back(host->name);
    out.hosts.resize(1);
    out.notes.push_back(fmt::format("not needed, hence not used: host {}", fmt::join(spare, ", ")));
    return {};
  }
  const char* what = nullptr;
  if (!out.job_file.empty() || (!out.apps.empty() && !out.apps[0].role.empty())) what = "roles";
  if (out.stdin_to.to == StdinRequest::To::kAll) what = "--stdin all";
  if (what == nullptr) return {};
  return invalid_argument(fmt::format("host {}: {} on several hosts: not yet; this one is {}", other->name,
                                      what, own_name(draft.around)));
}

Status count_by_lists(Draft& draft) {
  Options& out = draft.out;
  const Mapping& mapping = out.mapping;
  const bool in_sequence = mapping.map.kind == MapBy::Kind::kSequence;
  if (out.max == 0 && in_sequence) set_count(out, static_cast<std::uint32_t>(mapping.sequence.size()));
  if (out.max == 0 && draft.mpich())  // hydra counts mentions, not cores
    set_count(out, std::accumulate(
                       out.hosts.begin(), out.hosts.end(), out.hosts.empty() ? 1U : 0U,
                       [](std::uint32_t sum, const auto& host) { return sum + std::max(1U, host.slots); }));
  if (in_sequence && (mapping.sequence.empty() || mapping.sequence.size() < out.max)) {
    return draft.refuse(kContradicts,
                        invalid_argument(fmt::format(
                            "--map-by seq: {} members, but {} hosts in --hostfile, -H or "
                            "seq:FILE=PATH, which give each member its host",
                            out.max == 0 ? "all" : std::to_string(out.max), mapping.sequence.size())));
  }
  if (mapping.map.kind != MapBy::Kind::kRankFile || out.max <= mapping.ranks.size()) return {};
  return draft.refuse(kContradicts,
                      invalid_argument(fmt::format("{}: {} ranks for {} members", mapping.map.file,
                                                   mapping.ranks.size(), out.max)));
}

}  // namespace regroup::launcher
