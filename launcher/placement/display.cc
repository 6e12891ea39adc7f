// Tables for the user. Numbers are right-aligned, words left-aligned.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/printable.h"

#include "launcher/placement/members.h"

namespace regroup::placement {
namespace {

using Row = std::vector<std::string>;

std::string table(const std::vector<Row>& rows, const std::vector<bool>& right) {
  std::vector<std::size_t> width(right.size());
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  std::string out;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += right[i] ? fmt::format("  {:>{}}", row[i], width[i])
                       : fmt::format("  {:<{}}", row[i], width[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string name_of(const spec::AppRequest& app) {
  if (!app.role.empty()) return app.role;
  const std::string& path = app.command.at(0);
  return path.substr(path.rfind('/') + 1);
}

std::string allocation_text(const alloc::Allocation& allocation) {
  std::vector<Row> rows = {{"host", "slots", "processors"}};
  for (const alloc::Host& host : allocation.hosts) {
    rows.push_back({host.name, std::to_string(host.slots),
                    host.cores.empty() ? "unknown" : topology::ranges(host.cores)});
  }
  return fmt::format("allocation: {}\n{}", base::counted(allocation.slots(), "slot"),
                     table(rows, {false, true, false}));
}

std::string policy_text(const Policy& policy) {
  std::string out;
  switch (policy.map.kind) {
    case spec::MapBy::Kind::kPerUnit:
      out = fmt::format("{} on each {}", policy.map.per_unit, spec::unit_name(policy.map_unit));
      break;
    case spec::MapBy::Kind::kUnit:
      out = fmt::format("by {}", spec::unit_name(policy.map_unit));
      break;
    case spec::MapBy::Kind::kRankFile:
      out = "by rank file";
      break;
    case spec::MapBy::Kind::kCpuList:
      out = "by list of processors";
      break;
    case spec::MapBy::Kind::kDistance:
      out = "by GPU";
      break;
    default:
      out = "by slot";
      break;
  }
  if (!policy.bound) return fmt::format("{}, not bound: {}", out, policy.why_unbound);
  const bool share = policy.map.kind == spec::MapBy::Kind::kDistance && !policy.bind_asked;
  if (share || policy.map.kind == spec::MapBy::Kind::kRankFile ||
      policy.map.kind == spec::MapBy::Kind::kCpuList)
    return out + ", bound";
  if (policy.cpus > 1)
    return fmt::format(
        "{}, bound to {} {}s each", out, policy.cpus,
        spec::unit_name(policy.hwthreads ? spec::Unit::kHwThread : spec::Unit::kCore));
  return fmt::format("{}, bound to {}", out, spec::unit_name(policy.bind_unit));
}

std::string binding_of(const PlacedJob& job, std::size_t rank) {
  const topology::Topology* const topology = job.topology_of(rank);
  if (topology == nullptr) return "UNBOUND";
  return binding_text(*topology, job.placement.slots[rank].threads, job.placement.policy.hwthreads);
}

// Includes the host of each member if there are several, and the decisions about GPUs.
std::string map_text(const spec::JobSpec& spec, const alloc::Allocation& allocation,
                     const PlacedJob& job, const std::vector<std::uint32_t>& counts) {
  const bool several = allocation.hosts.size() > 1;
  std::vector<Row> rows = {{"rank", "program", "on", "processors", "binding"}};
  if (several) rows[0].insert(rows[0].begin() + 2, "host");
  if (spec.verbose) rows[0].emplace_back("why");
  std::size_t rank = 0;
  for (std::size_t app = 0; app < counts.size(); ++app) {
    for (std::uint32_t i = 0; i < counts[app] && rank < job.placement.slots.size(); ++i, ++rank) {
      const Slot& slot = job.placement.slots[rank];
      rows.push_back({std::to_string(rank), name_of(spec.apps.at(app)), slot.object,
                      slot.cpus.empty() ? "any" : topology::ranges(slot.cpus),
                      binding_of(job, rank)});
      if (several)
        rows.back().insert(rows.back().begin() + 2,
                           allocation.hosts.at(job.placement.hosts[rank]).name);
      if (spec.verbose) rows.back().push_back(slot.why);
    }
  }
  const std::string where =
      several ? fmt::format("{} hosts", allocation.hosts.size()) : allocation.hosts.at(0).name;
  std::string out = fmt::format("map: {} {} on {}, {}\n{}", rank, rank == 1 ? "member" : "members",
                                where, policy_text(job.placement.policy),
                                table(rows, {true, false, false, false, false, false, false}));
  for (const std::string& why : job.placement.why) out += fmt::format("  {}\n", why);
  return out;
}

}  // namespace

std::string display_text(const spec::JobSpec& spec, const alloc::Allocation& allocation,
                         const PlacedJob& job, const std::vector<std::uint32_t>& counts) {
  std::string out;
  const auto add = [&out](const std::string& part) { out += (out.empty() ? "" : "\n") + part; };
  for (std::size_t host = 0; spec.display.topology && host < job.topologies.size(); ++host)
    add(topology::describe(job.topologies[host], allocation.hosts.at(host).name));
  if (spec.display.allocation) add(allocation_text(allocation));
  if (spec.display.map) add(map_text(spec, allocation, job, counts));
  return out;
}

std::string bindings_text(const alloc::Allocation& allocation, const PlacedJob& job, int pid) {
  std::string out;
  for (std::size_t rank = 0; rank < job.placement.slots.size(); ++rank) {
    const bool bound =
        !job.placement.slots[rank].threads.empty() && job.topology_of(rank) != nullptr;
    const std::string what = bound ? fmt::format("bound to {}", binding_of(job, rank))
                                   : "is not bound (or bound to all available processors)";
    out += fmt::format("[{}:{}] Rank {} {}\n", allocation.hosts.at(job.placement.hosts[rank]).name,
                       pid, rank, what);
  }
  return out;
}

void print_display(const spec::JobSpec& spec, const alloc::Allocation& allocation,
                   const PlacedJob& job, const std::vector<std::uint32_t>& counts) {
  fmt::print("{}", display_text(spec, allocation, job, counts));
  std::fflush(stdout);
  if (spec.display.bindings) fmt::print(stderr, "{}", bindings_text(allocation, job, ::getpid()));
}

}  // namespace regroup::placement
