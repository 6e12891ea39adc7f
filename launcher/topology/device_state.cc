// Uses access(2), which also checks the device control group (inode_permission), as open(2) does,
// but does not start a GPU; that takes seconds without a persistence daemon.
#include "launcher/topology/device_state.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <string_view>

#include "launcher/topology/text_input.h"

namespace regroup::topology {
namespace {

namespace fs = std::filesystem;

void add_nodes(const fs::path& folder, std::string_view start, std::string& out) {
  for (const std::string& name : names_in(folder)) {
    const fs::path path = folder / name;
    if (name.starts_with(start) && ::access(path.c_str(), R_OK | W_OK) == 0)
      out += path.string() + "\n";
  }
}

// gpuN/mig/giN/ciN below /proc/driver/nvidia/capabilities.
void add_instances(const fs::path& folder, int depth, std::string& out) {
  for (const std::string& name : names_in(folder)) {
    if (!name.starts_with("gpu") && name != "mig" && !name.starts_with("gi") &&
        !name.starts_with("ci"))
      continue;
    out += (folder / name).string() + "\n";
    if (depth > 1) add_instances(folder / name, depth - 1, out);
  }
}

}  // namespace

std::string device_state(const SysfsRoots& roots) {
  const fs::path sys(roots.sys), dev(roots.dev);
  std::string out;
  for (const std::string& name : names_in(sys / "bus/pci/devices")) out += name + "\n";
  for (const auto& [folder, start] :
       {std::pair(dev, "nvidia"), std::pair(dev / "nvidia-caps", "nvidia-cap"),
        std::pair(dev / "dri", "renderD"), std::pair(dev, "kfd")})
    add_nodes(folder, start, out);
  add_instances(fs::path(roots.nvidia) / "capabilities", 4, out);
  for (const std::string& name : names_in(sys / "class/net"))
    out += fmt::format("{}{}\n", name, interface_up(roots, name) ? " up" : "");
  for (const std::string& name : names_in(sys / "class/infiniband")) {
    for (const std::string& port : names_in(sys / "class/infiniband" / name / "ports"))
      out += fmt::format("{}:{}{}\n", name, port, port_up(roots, name, port) ? " up" : "");
  }
  for (const std::string& name : roots.addressed ? *roots.addressed : addressed_interfaces())
    out += name + " has an address\n";
  const auto version = read_text_file(sys / "module/nvidia/version", 4096);
  if (version.ok()) out += *version;
  return out;
}

}  // namespace regroup::topology
