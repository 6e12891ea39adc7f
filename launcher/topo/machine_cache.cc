// A line "regroup-machine VERSION BOOT CRC32C", then JSON.
#include "launcher/topo/machine_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/crc32c.h"
#include "core/fd.h"
#include "launcher/topo/paths.h"
#include "launcher/topo/text_input.h"

namespace regroup::launcher {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(MigSlice, uuid, profile)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Gpu, number, bus_id, uuid, product, arch, numa, memory_bytes, labels, mig)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Nic, name, bus_id, kind, port, gbits, numa, interface)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NumaNode, number, package, cpus)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Switch, name)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Node, kind, index)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Link, kind, a, b, lanes, gbytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Machine, name, vendor, gpus, nics, numas, pci_switches, nv_switches, nodes,
                                   links, guesses)

namespace {

constexpr int kVersion = 1;

std::string path_in(const std::string& folder) { return folder + "/machine.json"; }

std::string header(const std::string& key, std::string_view body) {
  const std::uint32_t crc = core::crc32c(std::as_bytes(std::span(body.data(), body.size())));
  return fmt::format("regroup-machine {} {} {:08x}\n", kVersion, key, crc);
}

// Nobody else may have put it there.
bool is_ours(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == ::geteuid() &&
         (info.st_mode & 077) == 0;
}

// Indices that lead nowhere would be followed.
bool is_sound(const Machine& machine) {
  std::size_t ends = 0;
  for (const Node& node : machine.nodes) {
    const std::size_t size = node.kind == NodeKind::kGpu         ? machine.gpus.size()
                             : node.kind == NodeKind::kNic       ? machine.nics.size()
                             : node.kind == NodeKind::kNuma      ? machine.numas.size()
                             : node.kind == NodeKind::kPciSwitch ? machine.pci_switches.size()
                                                                 : SIZE_MAX;
    if (node.kind > NodeKind::kCard || node.index >= size) return false;
    ends += node.kind <= NodeKind::kNuma ? 1 : 0;
  }
  const auto off = [&machine](const Link& link) {
    return link.a >= machine.nodes.size() || link.b >= machine.nodes.size() || link.kind > LinkKind::kSys;
  };
  return ends == machine.ends() && std::none_of(machine.links.begin(), machine.links.end(), off) &&
         check_machine(machine, "").ok();
}

}  // namespace

std::optional<Machine> read_machine_cache(const std::string& folder, const std::string& key) {
  if (!is_ours(path_in(folder))) return {};
  const auto text = read_text_file(path_in(folder));
  if (!text.ok()) return {};
  const std::size_t end = text->find('\n');
  if (end == std::string::npos) return {};
  const std::string_view body = std::string_view(*text).substr(end + 1);
  if (std::string_view(*text).substr(0, end + 1) != header(key, body)) return {};
  const nlohmann::json json = nlohmann::json::parse(body, nullptr, false);
  if (json.is_discarded()) return {};
  Machine machine;
  try {
    json.get_to(machine);
  } catch (const nlohmann::json::exception&) {  // a version that forgot to count itself up
    return {};
  }
  if (!is_sound(machine)) return {};
  find_paths(machine);
  return machine;
}

void write_machine_cache(const std::string& folder, const std::string& key, const Machine& machine) {
  const std::string body =
      nlohmann::json(machine).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  const std::string text = header(key, body) + body;
  std::string name = path_in(folder) + ".XXXXXX";
  const core::Fd file(::mkostemp(name.data(), O_CLOEXEC));  // mode 0600
  if (!file.valid()) return;
  const ssize_t written = ::write(file.get(), text.data(), text.size());
  if (written != static_cast<ssize_t>(text.size()) || ::rename(name.c_str(), path_in(folder).c_str()) != 0)
    ::unlink(name.c_str());
}

}  // namespace regroup::launcher
