// This host is read in this process; the others answer through their agents.
#include "launcher/job/inventory.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "launcher/job/job_files.h"
#include "launcher/placement/this_machine.h"
#include "launcher/process/environment.h"

namespace regroup::job {
namespace {

constexpr int kNotInPath = 66;
constexpr int kNoFolder = 181;
constexpr int kNotExecutable = 183;

// The Open MPI status, or hydra's only one.
int as_under(spec::Compat compat, int status) {
  return compat == spec::Compat::kMpich ? kHydraFailed : status;
}

Inventory::Program find_program(const spec::AppRequest& app, const spec::JobSpec& spec) {
  if (const base::Status folder = process::check_wdir(app.wdir); !folder.ok())
    return Refusal{as_under(spec.compat, kNoFolder), folder.message()};
  spec::Environment searched_in = app.environment;
  if (!app.search_path.empty()) searched_in["PATH"] = app.search_path;
  auto path = process::find_member_program(app.command.at(0), app.wdir, searched_in);
  if (path.ok())
    return process::App{*path, app.command, app.environment, app.wdir, app.role, app.limits};
  const bool searched = app.command[0].find('/') == std::string::npos;
  Refusal out{as_under(spec.compat, searched ? kNotInPath : kNotExecutable),
              path.status().message()};
  if (!spec.like_command.empty())
    out.message += fmt::format("; did you mean regroup {}?", spec.like_command);
  return out;
}

// Where detected GPUs are cached; "": nowhere.
std::string cache_folder(const spec::JobSpec& spec) {
  auto folder = runtime_folder(spec.environment);
  return folder.ok() ? std::move(*folder) : "";
}

}  // namespace

base::Result<Inventory> read_inventory(const spec::JobSpec& spec, const alloc::Allocation& here) {
  Inventory out;
  REGROUP_ASSIGN_OR_RETURN(out.allocation, placement::usable_allocation(spec, here));
  out.cores = {out.allocation.slots()};
  out.hosts = {placement::this_machine(spec, out.allocation, cache_folder(spec))};
  for (const spec::AppRequest& app : spec.apps) out.programs.push_back(find_program(app, spec));
  return out;
}

Inventory without_hosts(const spec::JobSpec& spec) {
  Inventory out;
  for (const spec::AppRequest& app : spec.apps) {
    out.programs.emplace_back(
        process::App{"", app.command, app.environment, app.wdir, app.role, app.limits});
  }
  return out;
}

Inventory query_inventories(const spec::JobSpec& spec, const alloc::Allocation& here,
                            agent::Hosts& hosts) {
  Inventory out = without_hosts(spec);
  out.here = here.hosts.at(0).name;
  const auto order = placement::inventory_options(spec);
  std::vector<base::Result<std::string>> answers;
  if (order)
    answers = hosts.query_inventory(std::vector<agent::InventoryRequest>(
        hosts.size(), {order->devices, order->topology, {}, order->claims}));
  std::size_t other = 0;
  for (const spec::HostRequest& host : spec.hosts) {
    out.cores.push_back(host.here ? here.slots() : hosts.facts(other).slots);
    const std::uint32_t slots = host.slots != 0 ? host.slots : out.cores.back();
    base::Result<placement::HostInventory> inventory = placement::HostInventory();
    if (order && host.here)
      inventory = placement::take_inventory(*order, here.hosts.at(0).cores, spec.environment,
                                            cache_folder(spec));
    if (host.here && inventory.ok()) inventory->quota = here.hosts.at(0).quota;
    if (order && !host.here) {
      auto& answer = answers.at(other);
      inventory = answer.ok() ? placement::inventory_from_json(*answer) : answer.status();
    }
    if (inventory.ok()) placement::keep_granted(host, *inventory);
    out.allocation.hosts.push_back({host.name, slots, {}});
    if (inventory.ok()) out.allocation.hosts.back().cores = inventory->cpus;
    out.hosts.push_back({host.name, slots, host.max_slots, std::move(inventory)});
    if (!host.here) ++other;
  }
  return out;
}

base::Result<Inventory> described_inventories(const spec::JobSpec& spec,
                                              const alloc::Allocation& here) {
  REGROUP_ASSIGN_OR_RETURN(const alloc::Allocation machine,
                           placement::usable_allocation(spec, here));
  Inventory out = without_hosts(spec);
  out.here = here.hosts.at(0).name;
  for (const spec::HostRequest& host : spec.hosts) {
    const std::uint32_t slots = host.slots != 0 ? host.slots : machine.slots();
    placement::ClusterHost copy = placement::this_machine(spec, machine, "");
    if (copy.inventory.ok()) placement::keep_granted(host, *copy.inventory);
    copy.name = host.name;
    copy.slots = slots;
    copy.max_slots = host.max_slots;
    out.cores.push_back(machine.slots());
    out.allocation.hosts.push_back({host.name, slots, machine.hosts.at(0).cores});
    out.hosts.push_back(std::move(copy));
  }
  return out;
}

}  // namespace regroup::job
