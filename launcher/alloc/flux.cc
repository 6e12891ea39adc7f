// Flux RFC 20, "Resource Set Specification Version 1": what `flux resource R` prints in an
// instance, and `flux job info ID R` of a job.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/status.h"
#include "base/text.h"
#include "launcher/alloc/reading.h"
#include "launcher/spec/host_list.h"

namespace regroup::alloc {
namespace {

using base::invalid_argument;
using base::Result;
using base::Status;
using nlohmann::json;

struct Rank {
  int rank = 0;
  std::vector<int> cores, gpus;
};

// "[0-1,5]", or without brackets.
Result<std::vector<int>> idset(const json& value, std::string_view what) {
  if (!value.is_string()) return invalid_argument(fmt::format("{}: expected a string", what));
  std::string_view text = value.get_ref<const std::string&>();
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  auto numbers = spec::expand_numbers(text, spec::kMostHosts);
  if (!numbers.ok())
    return invalid_argument(fmt::format("{}: {}", what, numbers.status().message()));
  return numbers;
}

Result<std::vector<Rank>> read_ranks(const json& lite) {
  std::vector<Rank> ranks;
  if (!lite.is_array()) return invalid_argument("R_lite: expected a list");
  for (const json& entry : lite) {
    if (!entry.is_object() || !entry.contains("rank"))
      return invalid_argument("R_lite: an entry has no rank");
    REGROUP_ASSIGN_OR_RETURN(const auto numbers, idset(entry["rank"], "rank"));
    Rank rank;
    const json children = entry.value("children", json::object());
    for (auto [name, out] : {std::pair{"core", &rank.cores}, std::pair{"gpu", &rank.gpus}}) {
      if (!children.is_object() || !children.contains(name)) continue;
      REGROUP_ASSIGN_OR_RETURN(auto ids, idset(children[name], name));
      *out = std::move(ids);
    }
    if (numbers.size() * (rank.cores.size() + 1) > (64U << 20U) / sizeof(int))
      return invalid_argument("R_lite: too many cores");
    for (const int number : numbers) {
      rank.rank = number;
      ranks.push_back(rank);
    }
    if (ranks.size() > spec::kMostHosts)
      return invalid_argument(fmt::format("R_lite: more than {} ranks", spec::kMostHosts));
  }
  return ranks;
}

Result<std::vector<std::string>> read_nodes(const json& list) {
  std::vector<std::string> out;
  if (!list.is_array()) return invalid_argument("nodelist: expected a list");
  for (const json& entry : list) {
    if (!entry.is_string()) return invalid_argument("nodelist: expected strings");
    auto names = spec::expand_host_list(entry.get_ref<const std::string&>());
    if (!names.ok()) return invalid_argument("nodelist: " + names.status().message());
    out.insert(out.end(), names->begin(), names->end());
    if (out.size() > spec::kMostHosts)
      return invalid_argument(fmt::format("nodelist: more than {} names", spec::kMostHosts));
  }
  return out;
}

Status fill(const std::string& text, HostSum& sum) {
  const json all = json::parse(text, nullptr, false);
  if (!all.is_object() || !all.contains("execution") || !all["execution"].is_object())
    return invalid_argument("not a resource set (RFC 20)");
  if (all.value("version", json()) != json(1))
    return invalid_argument("unknown version of R; expected version 1");
  const json& execution = all["execution"];
  REGROUP_ASSIGN_OR_RETURN(auto ranks, read_ranks(execution.value("R_lite", json())));
  REGROUP_ASSIGN_OR_RETURN(const auto nodes, read_nodes(execution.value("nodelist", json())));
  std::ranges::sort(ranks, {}, &Rank::rank);
  if (ranks.size() != nodes.size())
    return invalid_argument(
        fmt::format("R_lite has {} ranks, but nodelist {} names", ranks.size(), nodes.size()));
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    Rank& rank = ranks[i];
    // Several brokers may share a host.
    REGROUP_RETURN_IF_ERROR(sum.add(nodes[i], rank.cores.size()));
    Host& host = *sum.find(nodes[i]);
    if (host.address.empty()) host.address = std::to_string(rank.rank);
    host.cores.insert(host.cores.end(), rank.cores.begin(), rank.cores.end());
    for (const int gpu : rank.gpus) host.gpus.push_back(std::to_string(gpu));
    host.gpu_count = static_cast<std::uint32_t>(host.gpus.size());
  }
  return {};
}

}  // namespace

Result<Reading> read_flux(const AllocInput& input) {
  Reading reading;
  reading.id = input.value("FLUX_JOB_ID");
  const std::vector<std::string> command =
      reading.id.empty() ? std::vector<std::string>{"flux", "resource", "R"}
                         : std::vector<std::string>{"flux", "job", "info", reading.id, "R"};
  const std::string what =
      reading.id.empty() ? "flux resource R" : fmt::format("flux job info {} R", reading.id);
  if (!input.run) return invalid_argument(what + ": commands cannot be run here");
  const auto text = input.run(command);
  if (!text.ok()) return Status(text.code(), fmt::format("{}: {}", what, text.status().message()));
  HostSum sum(what);
  if (Status status = fill(*text, sum); !status.ok())
    return invalid_argument(fmt::format("{}: {}", what, status.message()));
  if (sum.hosts().empty()) return invalid_argument(what + ": contains no host");
  reading.facts.push_back(what);
  sum.mark_here(input.host_name);
  reading.allocation.hosts = std::move(sum.hosts());
  // `flux exec -r` needs a broker rank after it, which is the address of a host.
  reading.reach.before = {"flux", "exec", "--quiet", "--rank"};
  return reading;
}

}  // namespace regroup::alloc
