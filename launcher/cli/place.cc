// Reads the machine, lets launcher/placement decide, prints.
#include "launcher/cli/place.h"

#include <fmt/format.h>

#include "base/status.h"
#include "launcher/job/start.h"
#include "launcher/placement/place_command.h"
#include "launcher/topology/load_fabric.h"
#include "launcher/topology/load_machine.h"

namespace regroup::cli {
namespace {

using placement::PlaceCommand;

base::Result<topology::Fabric> hosts_of(const PlaceCommand& command,
                                        const topology::Machine& machine) {
  if (!command.fabric.empty()) return topology::load_fabric(command.fabric, machine);
  std::vector<std::string> names;
  const std::string name = machine.name.empty() ? "host" : machine.name;
  for (std::uint32_t i = 0; i < command.hosts; ++i)
    names.push_back(command.hosts == 1 ? name : fmt::format("{}-{}", name, i));
  return topology::flat_fabric(machine, names);
}

base::Status place_and_print(const PlaceCommand& command) {
  REGROUP_ASSIGN_OR_RETURN(auto machine, topology::load_machine(command.machine));
  REGROUP_ASSIGN_OR_RETURN(auto fabric, hosts_of(command, machine));
  REGROUP_ASSIGN_OR_RETURN(const auto placement, placement::place_command(command, fabric));
  fmt::print("{}", command.json ? placement::place_json(fabric, placement)
                                : placement::place_text(command, fabric, placement));
  return {};
}

}  // namespace

int run_place(const std::vector<std::string>& words) {
  auto command = placement::parse_place_command(words);
  if (!command.ok()) return job::fail(command.status().message(), 1);
  if (command->help) {
    fmt::print("{}", placement::place_help());
    return 0;
  }
  const base::Status status = place_and_print(*command);
  return status.ok() ? 0 : job::fail(status.message(), 1);
}

}  // namespace regroup::cli
