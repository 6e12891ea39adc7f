// Reads the machine, lets launcher/place decide, prints.
#include "launcher/cli/place.h"

#include <fmt/format.h>

#include "launcher/job/start.h"
#include "launcher/placement/place_command.h"
#include "launcher/topology/load_fabric.h"
#include "launcher/topology/load_machine.h"

namespace regroup::cmd {
namespace {

using launcher::PlaceCommand;

base::Result<launcher::Fabric> hosts_of(const PlaceCommand& command, const launcher::Machine& machine) {
  if (!command.fabric.empty()) return launcher::load_fabric(command.fabric, machine);
  std::vector<std::string> names;
  const std::string name = machine.name.empty() ? "host" : machine.name;
  for (std::uint32_t i = 0; i < command.hosts; ++i)
    names.push_back(command.hosts == 1 ? name : fmt::format("{}-{}", name, i));
  return launcher::flat_fabric(machine, names);
}

base::Status place_and_print(const PlaceCommand& command) {
  auto machine = launcher::load_machine(command.machine);
  if (!machine.ok()) return machine.status();
  auto fabric = hosts_of(command, *machine);
  if (!fabric.ok()) return fabric.status();
  auto placement = launcher::place_command(command, *fabric);
  if (!placement.ok()) return placement.status();
  fmt::print("{}", command.json ? launcher::place_json(*fabric, *placement)
                                : launcher::place_text(command, *fabric, *placement));
  return {};
}

}  // namespace

int run_place(const std::vector<std::string>& words) {
  auto command = launcher::parse_place_command(words);
  if (!command.ok()) return fail(command.status().message(), 1);
  if (command->help) {
    fmt::print("{}", launcher::place_help());
    return 0;
  }
  const base::Status status = place_and_print(*command);
  return status.ok() ? 0 : fail(status.message(), 1);
}

}  // namespace regroup::cmd
