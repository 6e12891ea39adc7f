// Three readers, each of which converts text to fabric parts.
#include "launcher/topology/load_fabric.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "launcher/spec/host_list.h"
#include "launcher/topology/fabric_parts.h"
#include "launcher/topology/text_input.h"

namespace regroup::topology {
namespace {

using Parts = std::vector<FabricPart>;

constexpr std::size_t kMaxFabricBytes = std::size_t{64} << 20, kMaxYamlBytes = std::size_t{4} << 20;

std::string why_none(const base::Result<std::vector<std::string>>& names) {
  return names.ok() ? "the list is empty" : names.status().message();
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

// --- Slurm's topology.conf: Key=Value words, # comments, \ joins lines, keys in any case. The
// output of `scontrol show topology` has more keys, and lists for each switch the nodes of all
// switches below it.

struct SlurmLine {
  std::map<std::string, std::string> values;  // by key in lower case
  std::size_t number = 0;
};

// A shell prompt with the command ("[me@login ~]$ scontrol show topology"), copied with its output.
bool is_prompt(std::string_view line) {
  if (line.find('=') != std::string_view::npos) return false;
  return line.find("scontrol ") != std::string_view::npos || trimmed(line).ends_with('$');
}

base::Result<std::vector<SlurmLine>> slurm_lines(const std::string& text,
                                                 const std::string& source) {
  std::vector<SlurmLine> out;
  std::string joined;
  std::size_t number = 0, first = 0;
  for (const std::string_view raw : split(text, '\n')) {
    ++number;
    if (joined.empty()) first = number;
    std::string_view line = raw.substr(0, raw.find('#'));
    if (joined.empty() || joined.back() == ',') line = trimmed(line);  // a list continues
    while (!line.empty() && trimmed(line.substr(line.size() - 1)).empty()) line.remove_suffix(1);
    const bool goes_on = line.ends_with('\\');
    if (goes_on) line.remove_suffix(1);
    joined += line;
    if (goes_on) continue;
    if (is_prompt(joined)) joined.clear();
    SlurmLine next;
    next.number = first;
    for (const std::string_view word : split(joined, ' ')) {
      const std::size_t equals = word.find('=');
      if (equals == std::string_view::npos)
        return input_error(source, first,
                           fmt::format("'{}': expected KEY=VALUE", word.substr(0, 40)));
      if (!next.values.emplace(lower_case(word.substr(0, equals)), word.substr(equals + 1)).second)
        return input_error(source, first,
                           fmt::format("'{}' is given twice", word.substr(0, equals)));
    }
    joined.clear();
    if (!next.values.empty()) out.push_back(std::move(next));
  }
  return out;
}

bool has_names(const SlurmLine& line, const char* key) {
  const auto found = line.values.find(key);
  return found != line.values.end() && found->second != "(null)";
}

base::Result<Parts> read_slurm(const std::string& text, const std::string& source) {
  REGROUP_ASSIGN_OR_RETURN(const auto lines, slurm_lines(text, source));
  Parts out;
  for (const SlurmLine& line : lines) {
    const auto value = [&line](const char* key) {
      const auto found = line.values.find(key);
      return found == line.values.end() ? std::string() : found->second;
    };
    // Aggregated blocks are unions of blocks for planning, not connections.
    if (line.values.count("blocksizes") != 0 || line.values.count("aggregatedblock") != 0) continue;
    const bool printed = line.values.count("level") != 0 && has_names(line, "switches");
    FabricPart part;
    part.line = line.number;
    const bool block = line.values.count("blockname") != 0;
    part.kind = block ? FabricKind::kBlock : FabricKind::kSwitch;
    part.name = value(block ? "blockname" : "switchname");
    if (part.name.empty())
      return input_error(source, line.number, "expected SwitchName= or BlockName=");
    for (const auto& [key, names] :
         {std::pair("nodes", &part.hosts), std::pair("switches", &part.children)}) {
      if (!has_names(line, key) || (printed && names == &part.hosts)) continue;
      if (lower_case(value(key)) == "all")
        return input_error(
            source, line.number,
            fmt::format("{}={}: expected names, since this file does not list all of them", key,
                        value(key)));
      auto expanded = spec::expand_host_list(value(key));
      if (!expanded.ok() || expanded->empty())
        return input_error(source, line.number,
                           fmt::format("{}={}: expected a host list: {}", key,
                                       value(key).substr(0, 60), why_none(expanded)));
      *names = std::move(*expanded);
    }
    for (const auto& [key, ignored] : line.values) {
      static constexpr std::string_view kKnown[] = {"switchname", "blockname", "nodes",
                                                    "switches",   "linkspeed", "level",
                                                    "blockindex", "blocksize"};
      if (std::find(std::begin(kKnown), std::end(kKnown), key) == std::end(kKnown))
        return input_error(source, line.number,
                           fmt::format("'{}': unknown word of topology.conf", key));
    }
    out.push_back(std::move(part));
  }
  return out;
}

// --- Labels of Kubernetes nodes, from the largest group to the smallest; the last may be an NVLink
// domain.

struct Labels {
  std::vector<std::string_view> levels;
  std::string_view nvlink;
};

const std::vector<Labels>& known_labels() {
  static const std::vector<Labels> kLabels = {
      {{"network.topology.nvidia.com/core", "network.topology.nvidia.com/datacenter",
        "network.topology.nvidia.com/spine", "network.topology.nvidia.com/block",
        "network.topology.nvidia.com/leaf"},
       "network.topology.nvidia.com/accelerator"},
      {{"topology.k8s.aws/network-node-layer-1", "topology.k8s.aws/network-node-layer-2",
        "topology.k8s.aws/network-node-layer-3"},
       ""},
      {{"cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-subblock",
        "cloud.google.com/gce-topology-host"},
       ""},
      {{"topology.kubernetes.io/region", "topology.kubernetes.io/zone",
        "topology.kubernetes.io/rack"},
       ""},
  };
  return kLabels;
}

std::string text_at(const nlohmann::json& object, std::string_view key) {
  if (!object.is_object()) return "";
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

class LabelReader {
 public:
  explicit LabelReader(const std::string& source) : source_(source) {}

  base::Result<Parts> read(const std::string& text) {
    const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
    if (json.is_discarded()) return input_error(source_, 0, "expected JSON");
    const auto items = json.is_object() ? json.find("items") : json.end();
    if (items == json.end() || !items->is_array())
      return input_error(source_, 0,
                         "expected \"items\", as in the output of `kubectl get nodes -o json`");
    std::size_t number = 0;
    for (const nlohmann::json& item : *items) REGROUP_RETURN_IF_ERROR(add(item, number++));
    Parts out;
    for (auto& [name, part] : parts_) out.push_back(std::move(part));
    return out;
  }

 private:
  base::Status add(const nlohmann::json& item, std::size_t number) {
    const auto metadata = item.is_object() ? item.find("metadata") : item.end();
    const std::string name = metadata == item.end() ? "" : text_at(*metadata, "name");
    if (name.empty())
      return input_error(source_, 0, fmt::format("items[{}]: metadata.name is missing", number));
    const nlohmann::json labels = metadata->value("labels", nlohmann::json::object());
    for (const Labels& known : known_labels()) {
      std::string above;
      for (const std::string_view level : known.levels) {
        const std::string value = text_at(labels, level);
        if (!value.empty()) above = part(above, value);
      }
      const std::string domain = known.nvlink.empty() ? "" : text_at(labels, known.nvlink);
      if (!domain.empty()) nvlink(domain).hosts.push_back(name);
      if (above.empty() && domain.empty()) continue;
      if (!above.empty()) parts_[above].hosts.push_back(name);
      return {};
    }
    parts_["unlabelled"].name = "unlabelled";
    parts_["unlabelled"].hosts.push_back(name);
    return {};
  }

  // A label's value is unique only within the value of the level above.
  std::string part(const std::string& above, const std::string& value) {
    std::string name = above.empty() ? value : above + "/" + value;
    FabricPart& it = parts_[name];
    it.name = name;
    it.parent = above;
    return name;
  }

  FabricPart& nvlink(const std::string& domain) {
    FabricPart& it = parts_["nvlink:" + domain];
    it.name = "nvlink:" + domain;
    it.kind = FabricKind::kNvlink;
    return it;
  }

  const std::string& source_;
  std::map<std::string, FabricPart> parts_;
};

// --- YAML: switches: [{name, parent, hosts, gbytes, rails}], nvlink: [{name, hosts, gbytes}].

class YamlReader {
 public:
  explicit YamlReader(const std::string& source) : source_(source) {}

  base::Result<Parts> read(const std::string& text) {
    if (text.size() > kMaxYamlBytes)
      return input_error(source_, 0, fmt::format("longer than {} bytes", kMaxYamlBytes));
    try {
      const YAML::Node root = YAML::Load(text);
      if (!root.IsMap()) return fail(root, "expected 'switches:' or 'nvlink:'");
      for (const auto& entry : root) {
        const std::string key = entry.first.as<std::string>();
        if (key != "switches" && key != "nvlink")
          return fail(entry.first, fmt::format("'{}': expected switches or nvlink", key));
        if (!entry.second.IsSequence())
          return fail(entry.second, fmt::format("'{}': expected a list", key));
        for (const YAML::Node& part : entry.second)
          REGROUP_RETURN_IF_ERROR(add(part, key == "nvlink"));
      }
    } catch (const YAML::Exception& error) {  // yaml-cpp reports malformed values by exceptions
      return input_error(source_, static_cast<std::size_t>(std::max(error.mark.line, 0)) + 1,
                         error.msg);
    }
    return std::move(parts_);
  }

 private:
  [[nodiscard]] base::Status fail(const YAML::Node& node, std::string_view what) const {
    return input_error(source_, static_cast<std::size_t>(std::max(node.Mark().line, 0)) + 1, what);
  }

  base::Status add(const YAML::Node& node, bool nvlink) {
    if (!node.IsMap()) return fail(node, "expected a map with a name");
    FabricPart part;
    part.kind = nvlink ? FabricKind::kNvlink : FabricKind::kSwitch;
    part.line = static_cast<std::size_t>(std::max(node.Mark().line, 0)) + 1;
    for (const auto& entry : node) {
      const std::string key = entry.first.as<std::string>();
      if (!entry.second.IsScalar())
        return fail(entry.second, fmt::format("'{}': expected a single value", key));
      REGROUP_RETURN_IF_ERROR(set(part, key, entry.second, nvlink));
    }
    if (part.name.empty()) return fail(node, "name is missing");
    parts_.push_back(std::move(part));
    return {};
  }

  base::Status set(FabricPart& part, const std::string& key, const YAML::Node& node, bool nvlink) {
    const std::string& value = node.Scalar();
    if (key == "name") {
      part.name = value;
    } else if (key == "hosts") {
      auto hosts = spec::expand_host_list(value);
      if (!hosts.ok() || hosts->empty())
        return fail(node, fmt::format("hosts: '{}': expected a host list: {}", value.substr(0, 60),
                                      why_none(hosts)));
      part.hosts = std::move(*hosts);
    } else if (key == "gbytes") {
      const auto gbytes = real_number(value, 0, 1e9);
      if (!gbytes)
        return fail(node, fmt::format("gbytes: '{}': expected a number from 0 to 10^9",
                                      value.substr(0, 40)));
      (nvlink ? part.host_gbytes : part.up_gbytes) = *gbytes;
    } else if (key == "parent" && !nvlink) {
      part.parent = value;
    } else if (key == "rails" && !nvlink) {
      const auto rails = whole_number(value, 0, 64);
      if (!rails)
        return fail(node, fmt::format("rails: '{}': expected a whole number from 0 to 64",
                                      value.substr(0, 40)));
      part.rails = static_cast<std::uint32_t>(*rails);
    } else {
      return fail(node, fmt::format("'{}': unknown setting", key));
    }
    return {};
  }

  const std::string& source_;
  Parts parts_;
};

bool looks_like_slurm(const std::string& text) {
  const std::string lowered = lower_case(std::string_view(text).substr(0, std::size_t{1} << 16));
  return lowered.find("switchname=") != std::string::npos ||
         lowered.find("blockname=") != std::string::npos;
}

}  // namespace

base::Result<Fabric> parse_fabric(const std::string& text, const Machine& machine,
                                  const std::string& source) {
  if (text.size() > kMaxFabricBytes) return input_error(source, 0, "exceeds the size limit");
  const std::string clean = plain_screen(text);
  if (trimmed(clean).empty()) return input_error(source, 0, "the file is empty; expected a fabric");
  auto parts = trimmed(clean).starts_with('{') ? LabelReader(source).read(clean)
               : looks_like_slurm(clean)       ? read_slurm(clean, source)
                                               : YamlReader(source).read(clean);
  if (!parts.ok()) return parts.status();
  return build_fabric(std::move(*parts), machine, source);
}

base::Result<Fabric> load_fabric(const std::string& path, const Machine& machine) {
  REGROUP_ASSIGN_OR_RETURN(const auto text, read_text_file(path, kMaxFabricBytes));
  return parse_fabric(text, machine, path);
}

}  // namespace regroup::topology
