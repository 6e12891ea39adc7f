// Hosts by their names. There is one host as yet: this one, under any of its names.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
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
    if (is_local(around, host.name)) host.name = own_name(around);
    const auto known =
        std::find_if(out.begin(), out.end(), [&](const auto& each) { return each.name == host.name; });
    if (known == out.end()) {
      out.push_back(host);
    } else {
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

// The file of --map-by seq or rankfile: its hosts stand for those of a host file.
Status read_mapping_file(Draft& draft) {
  Mapping& mapping = draft.out.mapping;
  const std::string& path = mapping.map.file;
  const bool ranks = mapping.map.kind == MapBy::Kind::kRankFile;
  if ((!ranks && mapping.map.kind != MapBy::Kind::kSequence) || path.empty()) return {};
  auto text = draft.around.read_file ? draft.around.read_file(path) : invalid_argument("no file can be read");
  if (!text.ok()) return invalid_argument(fmt::format("{}: {}", path, text.status().message()));
  if (!ranks) {
    auto hosts = parse_host_file(*text, path);
    if (!hosts.ok()) return hosts.status();
    draft.listed.insert(draft.listed.end(), hosts->begin(), hosts->end());
    return {};
  }
  auto places = parse_rank_file(*text, path);
  if (!places.ok()) return places.status();
  if (draft.out.max > places->size()) {
    return invalid_argument(fmt::format("{}: {} ranks for {} members", path, places->size(), draft.out.max));
  }
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
  if (Status status = read_mapping_file(draft); !status.ok()) return status;
  const std::string own = own_name(draft.around);
  if (out.mapping.map.no_local) {
    return invalid_argument(
        fmt::format("nolocal: no member may run on this host ({}); several hosts: not yet", own));
  }
  std::vector<HostRequest> wanted;
  for (const AppDraft& app : draft.done) {
    std::copy(app.wanted.begin(), app.wanted.end(), std::back_inserter(wanted));
  }
  auto hosts = filter_hosts(by_one_name(draft.around, draft.listed), by_one_name(draft.around, wanted));
  if (!hosts.ok()) return hosts.status();
  std::vector<std::string> others;
  for (const HostRequest& host : *hosts) {
    if (host.name == own) out.hosts.push_back(host);
    if (host.name != own) others.push_back(host.name);
  }
  if (others.empty()) return {};
  const bool first = (*hosts)[0].name == own;
  if (!first || !fits_here(out, out.hosts[0])) {
    return invalid_argument(fmt::format("host {}: several hosts: not yet; this one is {}", others[0], own));
  }
  out.notes.push_back(fmt::format("not needed, hence not used: host {}", fmt::join(others, ", ")));
  return {};
}

}  // namespace regroup::launcher
