// Any text as a machine: hwloc's and NCCL's XML, nvidia-smi's matrix, the small language.
#include <cstddef>
#include <cstdint>
#include <string>

#include "launcher/topology/load_machine.h"
#include "launcher/topology/machine_view.h"
#include "tests/fuzz/require.h"

using regroup::fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto machine = regroup::topology::parse_machine(text, "fuzz");
  if (!machine.ok()) return 0;
  require(machine->paths.size() == machine->ends() * machine->ends());
  require(!regroup::topology::machine_view(*machine, {}).empty());
  return 0;
}
