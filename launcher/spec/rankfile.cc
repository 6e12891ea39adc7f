// One line is one rank.
#include "launcher/spec/rankfile.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/values.h"
#include "launcher/spec/hosts.h"
#include "launcher/spec/mapping.h"

namespace regroup::spec {
namespace {

using base::invalid_argument;
using base::Status;

constexpr std::size_t kMostRanks = 65536;

// Parses the value after "slot=".
Status read_slot(std::string_view text, RankPlace& out) {
  std::string_view cpus = text;
  if (const std::size_t colon = text.find(':'); colon != std::string_view::npos) {
    std::uint32_t package = 0;
    if (!base::read_number(text.substr(0, colon), package)) {
      return invalid_argument(
          fmt::format("slot={}: expected PACKAGE:CORES with PACKAGE a whole number", text));
    }
    out.package = package;
    cpus = text.substr(colon + 1);
    if (cpus == "*") return {};
  }
  return parse_cpu_list(cpus, out.cpus);
}

base::Result<RankPlace> read_rank_line(std::string_view line) {
  RankPlace out;
  const std::size_t equals = line.find('=');
  if (!line.starts_with("rank") || equals == std::string_view::npos ||
      !base::read_number(base::trim(line.substr(4, equals - 4)), out.rank)) {
    return invalid_argument("expected rank N=HOST slot=CPUS");
  }
  const std::string_view rest = base::trim(line.substr(equals + 1));
  const std::size_t blank = std::min(rest.find_first_of(" \t"), rest.size());
  out.host = rest.substr(0, blank);
  const std::string_view slot = base::trim(rest.substr(blank));
  if (out.host.empty() || !slot.starts_with("slot"))
    return invalid_argument("expected rank N=HOST slot=CPUS");
  if (!is_host_name(out.host) && !out.host.starts_with("+n"))
    return invalid_argument(fmt::format("'{}' is not a host name", out.host));
  const std::string_view value = base::trim(slot.substr(4));
  if (!value.starts_with('=')) return invalid_argument("expected slot=CPUS");
  if (Status status = read_slot(base::trim(value.substr(1)), out); !status.ok()) return status;
  return out;
}

}  // namespace

base::Result<std::vector<RankPlace>> parse_rank_file(std::string_view text, std::string_view file) {
  std::vector<RankPlace> out;
  std::size_t number = 0;
  for (const std::string& whole : base::split(text, "\n")) {
    ++number;
    const std::string_view line = base::trim(std::string_view(whole).substr(0, whole.find('#')));
    if (line.empty()) continue;
    auto place = read_rank_line(line);
    if (!place.ok())
      return invalid_argument(
          fmt::format("{}, line {}: {}", file, number, place.status().message()));
    if (out.size() == kMostRanks)
      return invalid_argument(fmt::format("{}: more than {} ranks", file, kMostRanks));
    out.push_back(*place);
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const auto& a, const auto& b) { return a.rank < b.rank; });
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i].rank == i) continue;
    const char* const what = out[i].rank < i ? "is given twice" : "is missing";
    return invalid_argument(
        fmt::format("{}: rank {} {}", file, std::min<std::size_t>(i, out[i].rank), what));
  }
  if (out.empty()) return invalid_argument(fmt::format("{}: contains no rank", file));
  return out;
}

}  // namespace regroup::spec
