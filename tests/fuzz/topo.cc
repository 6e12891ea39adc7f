// Any text as a machine: hwloc's and NCCL's XML, nvidia-smi's matrix, the small language.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "launcher/topo/load_machine.h"
#include "launcher/topo/machine_view.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto machine = regroup::launcher::parse_machine(text, "fuzz");
  if (!machine.ok()) return 0;
  if (machine->paths.size() != machine->ends() * machine->ends()) std::abort();
  if (regroup::launcher::machine_view(*machine, {}).empty()) std::abort();
  return 0;
}
