// Selects the reader for a text.
#include "launcher/topology/load_machine.h"

#include <fmt/format.h>

#include <filesystem>
#include <functional>

#include "launcher/topology/hwloc_machine.h"
#include "launcher/topology/machine_json.h"
#include "launcher/topology/machine_text.h"
#include "launcher/topology/nccl_xml.h"
#include "launcher/topology/nvidia_smi.h"
#include "launcher/topology/read_in_child.h"
#include "launcher/topology/smi_matrix.h"
#include "launcher/topology/text_input.h"
#include "launcher/topology/xml_input.h"

namespace regroup::topology {
namespace {

constexpr std::string_view kNcclRoot = "system";

base::Result<Machine> parse_xml(const std::string& text, const std::string& source) {
  REGROUP_ASSIGN_OR_RETURN(auto xml, XmlInput::parse(text, source));
  const std::string_view root = xml.root().name();
  if (root == "topology") return read_hwloc_xml(xml, text);
  if (root == kNcclRoot) return read_nccl_xml(xml);
  return xml.error(xml.root(),
                   fmt::format("<{}>: expected hwloc's <topology> or NCCL's <system>", root));
}

base::Result<Machine> parse_here(const std::string& text, const std::string& source) {
  const std::string_view start = trimmed(text);
  if (start.empty())
    return input_error(source, 0, "the file is empty; expected the topology of a machine");
  if (start.starts_with('<')) return parse_xml(text, source);
  if (looks_like_nvidia_smi(text)) return parse_nvidia_smi(text, source);
  return parse_machine_text(text, source);
}

base::Result<Machine> machine_from_child(const std::string& source,
                                         const std::function<base::Result<Machine>()>& read) {
  const auto json =
      read_in_child(source, "the topology reader", [&]() -> base::Result<std::string> {
        REGROUP_ASSIGN_OR_RETURN(const auto machine, read());
        return machine_to_json(machine);
      });
  if (!json.ok()) return json.status();
  auto machine = machine_from_json(*json);
  if (!machine.ok()) return input_error(source, 0, machine.status().message());
  return machine;
}

}  // namespace

base::Result<Machine> parse_machine(const std::string& text, const std::string& source) {
  const bool foreign =
      trimmed(text).starts_with('<') && text.find("<topology") != std::string::npos;
  if (!foreign) return parse_here(text, source);
  return machine_from_child(source, [&] { return parse_here(text, source); });
}

std::string nccl_topology_file(const std::string& path) {
  const auto text = path.empty() ? base::Result<std::string>(std::string()) : read_text_file(path);
  if (!text.ok() || !trimmed(*text).starts_with('<')) return "";
  const auto xml = XmlInput::parse(*text, path);
  if (!xml.ok() || xml->root().name() != kNcclRoot) return "";
  std::error_code error;
  const std::filesystem::path out = std::filesystem::absolute(path, error);
  return error ? "" : out.lexically_normal().string();
}

base::Result<Machine> load_machine(const std::string& path) {
  auto machine = machine_from_child(path, [&]() -> base::Result<Machine> {
    REGROUP_ASSIGN_OR_RETURN(const auto text, read_text_file(path));
    return parse_here(text, path);
  });
  if (machine.ok() && machine->name.empty()) {
    const std::size_t slash = path.rfind('/'), start = slash == std::string::npos ? 0 : slash + 1;
    machine->name = path.substr(start, path.rfind('.') - start);
  }
  return machine;
}

}  // namespace regroup::topology
