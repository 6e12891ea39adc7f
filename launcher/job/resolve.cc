// The order of the checks decides which exit status a job gets that has several faults: members
// that cannot be counted, then programs that are missing, then members that cannot be placed.
#include "launcher/job/resolve.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/printable.h"
#include "launcher/job/cluster_spec.h"
#include "launcher/job/virtual_rank.h"
#include "proto/world.h"

namespace regroup::job {
namespace {

constexpr std::uint32_t kMostMembers = 65536;
constexpr std::uint32_t kSpareSlots = 2;  // of dead members whose partial sums still count

// Members of each program that are placed at the start: of MIN:MAX no more than there are slots.
std::vector<std::uint32_t> placed_counts(const spec::JobSpec& spec, const ResolvedJob& job) {
  if (!spec.elastic || spec.oversubscribe) return job.members.counts;
  return {std::min(job.members.max, job.slots)};
}

// Numbers the hosts of the job and says where each rank runs.
void lay_out(const spec::JobSpec& spec, const Inventory& inventory, ResolvedJob& job) {
  job.hosts = {{inventory.here, 0}};
  std::vector<std::uint32_t> numbers;  // by host of the inventory
  std::vector<std::uint32_t> cores;    // the same: slots that were said may be more than its cores
  for (std::size_t i = 0; i < inventory.allocation.hosts.size(); ++i) {
    const alloc::Host& host = inventory.allocation.hosts[i];
    const bool here = !spec.several_hosts() || spec.hosts.at(i).here;
    numbers.push_back(here ? 0 : static_cast<std::uint32_t>(job.hosts.size()));
    // The slots of hydra say how to map members, not what a host has.
    const bool counted = spec.compat == spec::Compat::kMpich;
    const std::uint32_t slots = counted ? inventory.cores.at(i) : host.slots;
    if (here) job.hosts[0].slots = slots;
    if (!here) job.hosts.push_back({host.name, slots});
    cores.push_back(std::min(slots, inventory.cores.at(i)));
  }
  for (const std::uint32_t index : job.placed.placement.hosts)
    job.host_of.push_back(numbers[index]);
  job.threads = job.placed.threads(cores);
}

}  // namespace

base::Result<Members> fit_to_slots(const spec::JobSpec& spec, spec::MemberRange asked,
                                   std::uint32_t slots) {
  slots = slots_for(spec, slots);
  Members out{
      .min = asked.min, .max = asked.max, .start = spec.initial_size, .shards = spec.shards};
  if (out.max == 0) out.min = out.max = slots;
  for (const spec::AppRequest& app : spec.apps) out.counts.push_back(app.count.value_or(out.max));
  const bool one_host = !spec.several_hosts();
  if (spec.elastic && one_host && out.max >= proto::kMaxSlots) {
    return base::invalid_argument(
        fmt::format("-np {}:{}: expected at most {} members on one machine", out.min, out.max,
                    proto::kMaxSlots - 1));
  }
  if (spec.elastic && !one_host && spec.do_not_launch) {
    return base::invalid_argument(
        "--do-not-launch: an elastic job on several hosts places its members as hosts come; use "
        "-np N to see where N ranks would go");
  }
  if (out.max > kMostMembers) {
    return base::invalid_argument(
        fmt::format("{} members: expected at most {}", out.max, kMostMembers));
  }
  if (!spec.elastic && out.start != 0 && out.start != out.max) {
    return base::invalid_argument(
        fmt::format("--initial-size {}: requires an elastic job (-np MIN:MAX)", out.start));
  }
  if (out.start == 0) {
    out.start = spec.elastic ? std::max(out.min, std::min(out.max, slots)) : out.max;
  } else if (out.start < out.min || out.start > out.max) {
    return base::invalid_argument(
        fmt::format("--initial-size {}: expected a number in the range {}:{} of -np", out.start,
                    out.min, out.max));
  }
  if (out.start > (spec.oversubscribe ? out.max : slots)) {
    return base::invalid_argument(
        fmt::format("{} requested, {} {}available; --oversubscribe allows more",
                    base::counted(out.start, "member"), base::counted(slots, "slot"),
                    one_host && !slots_given(spec) ? "(cores) " : ""));
  }
  const std::uint32_t most = spec.hosts.size() == 1 ? spec.hosts[0].max_slots : 0;
  if (most != 0 && out.start > most) {
    return base::invalid_argument(fmt::format("{} requested; the host file allows {} (max_slots)",
                                              base::counted(out.start, "member"), most));
  }
  if (spec.spares > 0 && !spec.replace)
    return base::invalid_argument(fmt::format(
        "--spares {}: cannot be combined with --replace never, which replaces no lost member",
        spec.spares));
  if (spec.elastic && one_host && !spec.oversubscribe && out.start + spec.spares > slots) {
    out.notes.push_back(fmt::format("--spares {}: {} {} room for {} in addition to {}", spec.spares,
                                    base::counted(slots, "slot"), slots == 1 ? "has" : "have",
                                    slots - out.start, base::counted(out.start, "member")));
  }
  if (out.shards == 0)
    out.shards =
        spec.elastic ? std::bit_ceil(out.max) : std::min(std::bit_ceil(out.max), proto::kMaxShards);
  if (spec.elastic && out.shards > proto::kMaxShards) {
    return base::invalid_argument(
        fmt::format("--shards {}: expected at most {}", out.shards, proto::kMaxShards));
  }
  return out;
}

bool ResolvedJob::reads_input(const spec::StdinRequest& input, std::uint32_t host) const {
  if (input.to == spec::StdinRequest::To::kRank)
    return input.rank < host_of.size() && host_of[input.rank] == host;
  return input.to == spec::StdinRequest::To::kAll &&
         std::ranges::find(host_of, host) != host_of.end();
}

namespace {

// The status of a job that has too few slots. Open MPI 5's for a number of members on each object
// is another one.
int too_many_members(const spec::JobSpec& spec) {
  const bool each = spec.mapping.map.kind == spec::MapBy::Kind::kPerUnit ||
                    std::ranges::any_of(spec.apps, [](const spec::AppRequest& app) {
                      return app.per_node.has_value();
                    });
  return each && !spec.elastic ? placing_failed(spec) : refused(spec.compat);
}

}  // namespace

std::variant<ResolvedJob, Refusal> resolve(const spec::JobSpec& spec, const Inventory& inventory) {
  const int status = refused(spec.compat);
  const bool later = inventory.allocation.hosts.empty();
  ResolvedJob job;
  // Without -np as many as --map-by ppr:N:OBJECT gives on these hosts, or PE=N leaves room for.
  base::Result<spec::MemberRange> asked = spec::MemberRange{spec.min, spec.max};
  if (placement::counts_objects(spec)) asked = placement::members_of(spec, inventory.hosts);
  if (!asked.ok()) return Refusal{status, asked.status().message()};
  const std::uint32_t slots = later ? proto::kMaxMembers : inventory.allocation.slots();
  if (placement::counts_objects(spec) && spec.mapping.map.kind != spec::MapBy::Kind::kPerUnit)
    asked->min = asked->max = std::min(asked->max, slots_for(spec, slots));
  auto members = fit_to_slots(spec, *asked, slots);
  if (!members.ok()) return Refusal{too_many_members(spec), members.status().message()};
  job.members = std::move(*members);
  const spec::StdinRequest& input = spec.stdin_to;
  if (input.to == spec::StdinRequest::To::kRank && input.rank >= job.members.max) {
    return Refusal{status, fmt::format("--stdin {}: expected a rank of at most {}", input.rank,
                                       job.members.max - 1)};
  }
  for (const auto& program : inventory.programs) {
    if (const auto* missing = std::get_if<Refusal>(&program)) return *missing;
    job.apps.push_back(std::get<process::App>(program));
  }
  job.notes = unheeded_options(spec, job.members.notes);
  job.slots = slots_for(spec, slots);
  if (later) return job;
  job.counts = placed_counts(spec, job);
  auto placed = placement::place_on_cluster(
      spec, inventory.hosts, placement::job_request(spec, job.counts, needs_of(spec)));
  if (!placed.ok()) {
    const bool few_slots = placed.code() == base::Code::kUnavailable;
    return Refusal{few_slots ? too_many_members(spec) : placing_failed(spec),
                   placed.status().message(), std::move(job.notes)};
  }
  job.placed = std::move(*placed);
  lay_out(spec, inventory, job);
  if (!spec.virtual_local_rank) return job;
  const base::Status devices =
      add_virtual_ranks(spec, job.counts, job.host_of, job.placed.environments);
  if (!devices.ok()) return Refusal{status, devices.message(), std::move(job.notes)};
  return job;
}

base::Result<placement::PlacedJob> resolve_host(const spec::JobSpec& spec,
                                                const spec::HostRequest& host, std::uint32_t slots,
                                                placement::HostInventory inventory) {
  placement::keep_granted(host, inventory);
  placement::JobRequest request = placement::job_request(spec, {slots}, {});
  if (request.on_devices()) {
    std::uint32_t room = placement::count_of(placement::idle_gpus(inventory)) / request.gpus.at(0);
    if (room == 0 && spec.oversubscribe)
      room = placement::count_of(inventory.free) / request.gpus.at(0);
    request.ranks.counts = {std::max(1U, spec.oversubscribe ? room : std::min(slots, room))};
  }
  auto placed =
      placement::place_on_cluster(spec, {{host.name, 0, 0, std::move(inventory)}}, request);
  base::Status status = placed.status();
  if (placed.ok() && spec.virtual_local_rank)
    status = add_virtual_ranks(spec, request.ranks.counts, {}, placed->environments);
  if (status.ok()) return placed;
  return base::Status(status.code(), fmt::format("host {}: {}", host.name, status.message()));
}

// If no role says how many GPUs its members need, chiefs and workers get those of --gpus-per-rank,
// at least one, and servers and evaluators none.
placement::MemberNeeds needs_of(const spec::JobSpec& spec) {
  placement::MemberNeeds out;
  const bool said = std::any_of(spec.roles.begin(), spec.roles.end(),
                                [](const Role& role) { return role.gpus > 0; });
  for (std::size_t i = 0; i < spec.roles.size(); ++i) {
    const Role& role = spec.roles[i];
    const RoleKind kind = kind_of(role);
    const bool computes = kind == RoleKind::kChief || kind == RoleKind::kWorker;
    out.roles.push_back(role.name);
    out.gpus.push_back(said ? role.gpus : computes ? std::max(1U, spec.mapping.gpus) : 0);
    out.cores.push_back(static_cast<std::uint32_t>(std::ceil(spec.apps.at(i).limits.cpus)));
  }
  return out;
}

// All members may come to be on one host.
std::uint32_t arena_slots(std::uint32_t members) {
  return std::min<std::uint32_t>(members + kSpareSlots, proto::kMaxSlots - 1);
}

int placing_failed(const spec::JobSpec& spec) {
  if (spec.compat == spec::Compat::kMpich) return kHydraFailed;
  return placement::binds_beyond_map(spec.mapping) ? 77 : 213;
}

}  // namespace regroup::job
