// The small language for synthetic machines. Each line has a keyword, names, and settings
// "key=value"; an object connects only to objects of earlier lines.
#include "launcher/topology/machine_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "launcher/topology/paths.h"
#include "launcher/topology/text_input.h"

namespace regroup::topology {
namespace {

class TextReader {
 public:
  explicit TextReader(const std::string& source) : source_(source) {}

  base::Result<Machine> read(std::string_view text) {
    for (const std::string_view line : split(text, '\n')) {
      ++line_;
      REGROUP_RETURN_IF_ERROR(read_line(line.substr(0, line.find('#'))));
      if (machine_.ends() > kMaxEnds || machine_.nodes.size() > kMaxNodes ||
          machine_.links.size() > kMaxLinks)
        return fail("too many GPUs, NICs, NUMA nodes, switches or links");
    }
    if (machine_.numas.empty())
      return fail("expected a line 'numa N' with the machine's processors");
    link_numas(machine_, numa_gbytes_);
    order_gpus(machine_);
    find_paths(machine_);
    return std::move(machine_);
  }

 private:
  using Read = base::Status (TextReader::*)();
  struct Row {
    std::string_view word;
    std::size_t names;  // number of names that follow the keyword
    Read read;
    std::vector<std::string_view> keys;
  };

  [[nodiscard]] base::Status fail(std::string_view what) const {
    return input_error(source_, line_, what);
  }

  base::Status read_line(std::string_view line) {
    static const std::vector<Row> kRows = {
        {"machine", 1, &TextReader::read_name, {}},
        {"cpu", 1, &TextReader::read_cpu, {"sys"}},
        {"numa", 1, &TextReader::read_numa, {"package", "cpus"}},
        {"switch", 1, &TextReader::read_switch, {"at", "gen", "lanes"}},
        {"card", 1, &TextReader::read_card, {"at", "gen", "lanes"}},
        {"gpu",
         1,
         &TextReader::read_gpus,
         {"at", "gen", "lanes", "model", "arch", "label", "memory", "bus", "uuid"}},
        {"nic",
         1,
         &TextReader::read_nic,
         {"at", "gen", "lanes", "kind", "speed", "port", "bus", "interface"}},
        {"nvlink", 2, &TextReader::read_gpu_link, {"links", "gbytes"}},
        {"xgmi", 2, &TextReader::read_gpu_link, {"links", "gbytes"}},
        {"c2c", 2, &TextReader::read_gpu_link, {"gbytes"}},
        {"nvswitch", 1, &TextReader::read_nvswitch, {"gpus", "links", "gbytes"}},
        {"sys", 2, &TextReader::read_sys, {"gbytes"}},
    };
    words_.clear();
    settings_.clear();
    std::vector<std::string_view> pieces = split(line, ' ');
    if (pieces.empty()) return {};
    const auto row =
        std::find_if(kRows.begin(), kRows.end(), [&](const Row& r) { return r.word == pieces[0]; });
    if (row == kRows.end()) return fail(fmt::format("'{}': unknown word", pieces[0]));
    word_ = pieces[0];
    for (std::size_t i = 1; i < pieces.size(); ++i) REGROUP_RETURN_IF_ERROR(take(*row, pieces[i]));
    if (words_.size() != row->names)
      return fail(
          fmt::format("'{}': expected {} name(s), got {}", row->word, row->names, words_.size()));
    return (this->*row->read)();
  }

  base::Status take(const Row& row, std::string_view piece) {
    const std::size_t equals = piece.find('=');
    if (equals == std::string_view::npos) {
      words_.push_back(piece);
      return {};
    }
    const std::string_view key = piece.substr(0, equals);
    if (std::find(row.keys.begin(), row.keys.end(), key) == row.keys.end())
      return fail(fmt::format("'{}': unknown setting '{}'", row.word, key));
    if (!settings_.emplace(key, piece.substr(equals + 1)).second)
      return fail(fmt::format("'{}' is given twice", key));
    return {};
  }

  [[nodiscard]] std::string_view setting(std::string_view key) const {
    const auto found = settings_.find(key);
    return found == settings_.end() ? std::string_view() : found->second;
  }

  // The setting as a number in [least, most]; `otherwise` if it is not given.
  base::Result<double> number(std::string_view key, double least, double most,
                              double otherwise) const {
    if (settings_.count(key) == 0) return otherwise;
    if (const auto value = real_number(setting(key), least, most)) return *value;
    return fail(
        fmt::format("{}={}: expected a number from {} to {}", key, setting(key), least, most));
  }

  base::Status read_name() {
    machine_.name = words_[0];
    return {};
  }

  base::Status read_cpu() {
    machine_.vendor = words_[0];
    if (machine_.vendor != "intel" && machine_.vendor != "amd" && machine_.vendor != "arm" &&
        machine_.vendor != "power")
      return fail(fmt::format("'{}': expected intel, amd, arm or power", words_[0]));
    REGROUP_ASSIGN_OR_RETURN(const auto sys,
                             number("sys", 0.001, 1e6, numa_gbytes(words_[0], 0, 0)));
    numa_gbytes_ = sys;
    return {};
  }

  base::Status read_numa() {
    const auto number = whole_number(words_[0], 0, kMaxCpu);
    if (!number) return fail(fmt::format("'{}': expected the number of a NUMA node", words_[0]));
    const auto package =
        whole_number(settings_.count("package") == 0 ? words_[0] : setting("package"), 0, kMaxCpu);
    if (!package) return fail(fmt::format("package={}: expected a number", setting("package")));
    NumaNode numa{static_cast<int>(*number), static_cast<std::uint32_t>(*package), {}};
    if (settings_.count("cpus") != 0) {
      auto cpus = number_list(setting("cpus"), kMaxCpu);
      if (!cpus) return fail(fmt::format("cpus={}: expected a processor list", setting("cpus")));
      numa.cpus = std::move(*cpus);
    }
    const std::uint32_t node = add_numa(machine_, std::move(numa));
    return name(fmt::format("numa:{}", *number), node);
  }

  base::Status name(const std::string& name, std::uint32_t node) {
    if (places_.emplace(name, node).second) return {};
    return fail(fmt::format("'{}' is defined twice", name));
  }

  base::Result<std::uint32_t> place(std::string_view name) const {
    const auto found = places_.find(std::string(name));
    if (found != places_.end()) return found->second;
    return fail(fmt::format("'{}' is not defined above this line", name));
  }

  // Adds the PCIe link of `node`, named `called`, to its at=PLACE.
  base::Status attach(std::string_view called, std::uint32_t node) {
    REGROUP_RETURN_IF_ERROR(name(std::string(called), node));
    if (settings_.count("at") == 0) return fail(fmt::format("'{}': at=PLACE is missing", word_));
    REGROUP_ASSIGN_OR_RETURN(const auto at, place(setting("at")));
    const NodeKind kind = machine_.nodes[at].kind;
    if (kind != NodeKind::kNuma && kind != NodeKind::kPciSwitch && kind != NodeKind::kCard)
      return fail(fmt::format("'{}' cannot hold a device or switch", setting("at")));
    REGROUP_ASSIGN_OR_RETURN(const auto generation, number("gen", 1, 7, 3));
    REGROUP_ASSIGN_OR_RETURN(const auto lanes, number("lanes", 1, 32, 16));
    static constexpr double kTransfers[] = {2.5, 5, 8, 16, 32, 64, 128};
    const auto wide = static_cast<std::uint32_t>(lanes);
    const double speed = kTransfers[static_cast<std::size_t>(generation) - 1];
    add_link(machine_, {LinkKind::kPci, node, at, wide, pci_gbytes(speed, wide)});
    return {};
  }

  base::Status read_switch() {
    return attach(words_[0], add_pci_switch(machine_, {std::string(words_[0])}));
  }

  base::Status read_card() { return attach(words_[0], add_plain_node(machine_, NodeKind::kCard)); }

  base::Result<std::string> bus() const {
    if (settings_.count("bus") == 0) return std::string();
    if (auto id = bus_id(setting("bus"))) return *id;
    return fail(fmt::format("bus={}: expected a PCI address", setting("bus")));
  }

  // `port`: port number of a network card; 0: a GPU. Ports of one card share its bus id.
  base::Status take_bus(const std::string& id, int port) {
    if (id.empty()) return {};
    const auto at = places_.find(std::string(setting("at")));
    const bool card = at != places_.end() && machine_.nodes[at->second].kind == NodeKind::kCard;
    const std::pair<std::uint32_t, int> here(card && port > 0 ? at->second : kNoPart, port);
    const auto [first, last] = buses_.equal_range(id);
    const bool shared = std::all_of(first, last, [&](const auto& other) {
      return here.first != kNoPart && other.second.first == here.first &&
             other.second.second != port;
    });
    if (!shared) return fail(fmt::format("bus ID {} is listed twice", id));
    buses_.emplace(id, here);
    return {};
  }

  base::Status read_gpus() {
    const auto numbers = number_list(words_[0], static_cast<int>(kMaxEnds));
    if (!numbers) return fail(fmt::format("'{}': expected a GPU list", words_[0]));
    REGROUP_ASSIGN_OR_RETURN(const auto memory, number("memory", 0, 1e6, 0));
    REGROUP_ASSIGN_OR_RETURN(auto id, bus());
    if (numbers->size() > 1 && (!id.empty() || !setting("uuid").empty()))
      return fail("several GPUs cannot share a bus ID or a UUID");
    for (const int number : *numbers) {
      Gpu gpu;
      gpu.number = number;
      gpu.bus_id = id;
      gpu.uuid = setting("uuid");
      gpu.product = setting("model");
      gpu.arch = setting("arch");
      gpu.memory_bytes = static_cast<std::uint64_t>(memory * (1ULL << 30));
      for (const std::string_view label : split(setting("label"), ',')) {
        if (!label.empty()) gpu.labels.emplace_back(label);
      }
      REGROUP_RETURN_IF_ERROR(take_bus(gpu.bus_id, 0));
      REGROUP_RETURN_IF_ERROR(
          attach(fmt::format("gpu:{}", number), add_gpu(machine_, std::move(gpu))));
      machine_.gpus.back().numa = numa_above(static_cast<std::uint32_t>(machine_.nodes.size() - 1));
    }
    return {};
  }

  // The NUMA node above a device.
  std::uint32_t numa_above(std::uint32_t node) const {
    for (std::size_t i = machine_.links.size(); i-- > 0;) {  // links go to earlier nodes
      const Link& link = machine_.links[i];
      if (link.kind == LinkKind::kPci && link.a == node) node = link.b;
    }
    return machine_.nodes[node].kind == NodeKind::kNuma ? machine_.nodes[node].index : kNoPart;
  }

  base::Status read_nic() {
    Nic nic;
    nic.name = words_[0];
    const std::string_view kind = settings_.count("kind") == 0 ? "ethernet" : setting("kind");
    bool known = false;
    for (const NicKind k :
         {NicKind::kInfiniband, NicKind::kRoce, NicKind::kEfa, NicKind::kEthernet}) {
      if (kind != nic_kind_name(k)) continue;
      nic.kind = k;
      known = true;
    }
    if (!known) return fail(fmt::format("kind={}: expected ib, roce, efa or ethernet", kind));
    REGROUP_ASSIGN_OR_RETURN(const auto speed, number("speed", 0, 1e6, 0));
    REGROUP_ASSIGN_OR_RETURN(const auto port, number("port", 1, 255, 1));
    REGROUP_ASSIGN_OR_RETURN(auto id, bus());
    nic.gbits = speed;
    nic.port = static_cast<int>(port);
    nic.bus_id = id;
    nic.interface = setting("interface");
    REGROUP_RETURN_IF_ERROR(take_bus(nic.bus_id, nic.port));
    REGROUP_RETURN_IF_ERROR(attach(words_[0], add_nic(machine_, std::move(nic))));
    machine_.nics.back().numa = numa_above(static_cast<std::uint32_t>(machine_.nodes.size() - 1));
    return {};
  }

  // A GPU is named by its number, a NUMA node as numa:N.
  base::Result<std::uint32_t> link_end(std::string_view name) const {
    return place(name.starts_with("numa:") ? std::string(name) : fmt::format("gpu:{}", name));
  }

  // GB/s of one link: the setting, or the speed of the GPU's links.
  base::Result<double> one_link(std::uint32_t node) const {
    const MachineNode& at = machine_.nodes[node];
    const std::string arch = at.kind == NodeKind::kGpu ? machine_.gpus[at.index].arch : "";
    if (settings_.count("gbytes") == 0 && arch.empty())
      return fail(fmt::format("'{}': gbytes= is missing, and its GPU has no arch=", word_));
    return number("gbytes", 0.001, 1e6, link_gbytes(arch));
  }

  base::Status read_gpu_link() {
    REGROUP_ASSIGN_OR_RETURN(const auto a, link_end(words_[0]));
    REGROUP_ASSIGN_OR_RETURN(const auto b, link_end(words_[1]));
    if (a == b) return fail(fmt::format("'{}' is linked to itself", words_[0]));
    REGROUP_ASSIGN_OR_RETURN(const auto links, number("links", 1, 64, 1));
    REGROUP_ASSIGN_OR_RETURN(const auto each, one_link(a));
    const LinkKind kind = word_ == "nvlink" ? LinkKind::kNvlink
                          : word_ == "xgmi" ? LinkKind::kXgmi
                                            : LinkKind::kC2c;
    const auto twice = [&](const Link& link) {
      return link.kind == kind && ((link.a == a && link.b == b) || (link.a == b && link.b == a));
    };
    if (std::any_of(machine_.links.begin(), machine_.links.end(), twice))
      return fail(fmt::format("{} and {} are linked twice", words_[0], words_[1]));
    const auto count = static_cast<std::uint32_t>(links);
    add_link(machine_, {kind, a, b, count, each * count});
    return {};
  }

  base::Status read_nvswitch() {
    const auto count = whole_number(words_[0], 1, 256);
    if (!count) return fail(fmt::format("'{}': expected a number of NVSwitches", words_[0]));
    const auto gpus = number_list(setting("gpus"), static_cast<int>(kMaxEnds));
    if (!gpus) return fail(fmt::format("gpus={}: expected a GPU list", setting("gpus")));
    REGROUP_ASSIGN_OR_RETURN(const auto links, number("links", 1, 64, 1));
    const std::uint32_t node = add_plain_node(machine_, NodeKind::kNvSwitch);
    for (std::int64_t i = 0; i < *count; ++i)
      machine_.nv_switches.push_back({fmt::format("nvswitch{}", machine_.nv_switches.size())});
    for (const int gpu : *gpus) {
      REGROUP_ASSIGN_OR_RETURN(const auto end, place(fmt::format("gpu:{}", gpu)));
      REGROUP_ASSIGN_OR_RETURN(const auto each, one_link(end));
      const auto lanes = static_cast<std::uint32_t>(links);
      add_link(machine_, {LinkKind::kNvlink, end, node, lanes, each * lanes});
    }
    return {};
  }

  base::Status read_sys() {
    REGROUP_ASSIGN_OR_RETURN(const auto a, place(fmt::format("numa:{}", words_[0])));
    REGROUP_ASSIGN_OR_RETURN(const auto b, place(fmt::format("numa:{}", words_[1])));
    if (a == b) return fail(fmt::format("'{}' is linked to itself", words_[0]));
    REGROUP_ASSIGN_OR_RETURN(const auto gbytes, number("gbytes", 0.001, 1e6, numa_gbytes_));
    add_link(machine_, {LinkKind::kSys, a, b, 0, gbytes});
    return {};
  }

  const std::string& source_;
  std::size_t line_ = 0;
  std::string_view word_;
  std::vector<std::string_view> words_;
  std::map<std::string_view, std::string_view> settings_;
  std::map<std::string, std::uint32_t> places_;  // name -> node
  // The node of the card (kNoPart: none), and the port.
  std::multimap<std::string, std::pair<std::uint32_t, int>> buses_;
  double numa_gbytes_ = 10;
  Machine machine_;
};

}  // namespace

base::Result<Machine> parse_machine_text(std::string_view text, const std::string& source) {
  if (text.size() > kMaxTopologyBytes) return input_error(source, 0, "exceeds the size limit");
  return TextReader(source).read(text);
}

}  // namespace regroup::topology
