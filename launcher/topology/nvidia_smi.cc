// The matrix has only classes. A group of devices joined by PIX becomes a switch, a group joined by
// PXB becomes switches below another; NUMA nodes have a column of their own. NV# hides the PCIe
// class of two GPUs, so the place of such a GPU follows from its pairs with NICs.
#include "launcher/topology/nvidia_smi.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "launcher/topology/machine_builder.h"
#include "launcher/topology/smi_matrix.h"
#include "launcher/topology/text_input.h"

namespace regroup::topology {
namespace {

class MatrixReader {
 public:
  MatrixReader(SmiMatrix matrix, const std::string& source)
      : source_(source), matrix_(std::move(matrix)), rows_(matrix_.rows) {}

  base::Result<Machine> read() {
    MachineParts parts;
    parts.source = source_;
    parts.guesses = {
        "`nvidia-smi topo -m` lists neither products nor PCIe speeds: assuming generation 3"};
    parts.guesses.insert(parts.guesses.end(), matrix_.notes.begin(), matrix_.notes.end());
    const std::vector<std::size_t> leaf = smi_groups(matrix_, SmiCell::kPix),
                                   top = smi_groups(matrix_, SmiCell::kPxb);
    SmiNumas numas = smi_numas(matrix_);
    for (auto& [number, cpus] : numas.cpus)
      parts.numas.push_back({number, static_cast<std::uint32_t>(number), std::move(cpus)});
    for (std::size_t i = 0; i < rows_.size(); ++i)
      parts.devices.push_back(device(i, leaf, top, numas.of_row[i]));
    add_nvlinks(parts);
    auto machine = build_machine(std::move(parts));
    if (!machine.ok()) return machine;
    REGROUP_RETURN_IF_ERROR(compare(*machine, numas.of_row));
    for (Gpu& gpu : machine->gpus) gpu.bus_id.clear();
    for (Nic& nic : machine->nics) nic.bus_id.clear();
    return machine;
  }

 private:
  PciDevice device(std::size_t i, const std::vector<std::size_t>& leaf,
                   const std::vector<std::size_t>& top, int numa) {
    PciDevice out;
    out.link.bus_id = rows_[i].name;
    out.numa = numa;
    out.line = rows_[i].line;
    const auto alone = [i](const std::vector<std::size_t>& group) {
      return std::count(group.begin(), group.end(), group[i]) == 1;
    };
    if (!alone(top) && top_is_wider(leaf, top, i))
      out.switches.push_back({fmt::format("switches of {}", rows_[top[i]].name)});
    if (!alone(leaf) || !out.switches.empty())
      out.switches.push_back({fmt::format("switch of {}", rows_[leaf[i]].name)});
    if (rows_[i].name.starts_with("GPU")) {
      out.gpu.emplace().number = static_cast<int>(
          whole_number(rows_[i].name.substr(3), 0, 65535).value_or(static_cast<std::int64_t>(i)));
      out.gpu->arch = arch();
      return out;
    }
    Nic nic;
    const auto named = matrix_.nic_names.find(rows_[i].name);
    nic.name = named == matrix_.nic_names.end() ? rows_[i].name : named->second;
    nic.kind = NicKind::kInfiniband;
    out.ports.push_back(std::move(nic));
    return out;
  }

  static bool top_is_wider(const std::vector<std::size_t>& leaf,
                           const std::vector<std::size_t>& top, std::size_t i) {
    for (std::size_t j = 0; j < top.size(); ++j) {
      if (top[j] == top[i] && leaf[j] != leaf[i]) return true;
    }
    return false;
  }

  // Greatest number of NVLinks that a GPU would need if all were direct.
  std::uint32_t most_links() const {
    std::uint32_t most = 0;
    for (const SmiRow& row : rows_)
      most = std::max(most, std::accumulate(row.nvlinks.begin(), row.nvlinks.end(), 0U));
    return most;
  }

  static constexpr std::uint32_t kMostLinks = 18;  // that any GPU has

  std::string arch() const {
    std::uint32_t links = 0;
    for (const SmiRow& row : rows_) {
      for (const std::uint32_t n : row.nvlinks) links = std::max(links, n);
    }
    return links == 0 ? "" : links >= 18 ? "sm90" : links >= 7 ? "sm80" : "sm70";
  }

  void add_nvlinks(MachineParts& parts) const {
    const bool switched = most_links() > kMostLinks;
    for (const SmiRow& row : rows_) {
      const std::uint32_t widest = *std::max_element(row.nvlinks.begin(), row.nvlinks.end());
      if (switched && widest > 0)
        parts.links.push_back(
            {LinkKind::kNvlink, row.name, GpuLink::To::kSwitch, "", widest, row.line});
      for (std::size_t j = 0; !switched && j < rows_.size(); ++j) {
        if (row.nvlinks[j] > 0)
          parts.links.push_back({LinkKind::kNvlink, row.name, GpuLink::To::kGpu, rows_[j].name,
                                 row.nvlinks[j], row.line});
      }
    }
    if (!arch().empty())
      parts.guesses.push_back(fmt::format("assuming {} GPUs from the number of NVLinks", arch()));
    if (switched) parts.guesses.emplace_back("more NVLinks than a GPU has: assuming NVSwitches");
  }

  // Checks that the built machine has the classes of the matrix. Ignores two of them: SYS between
  // two devices whose rows name the same node, which some machines print for root complexes without
  // a common bridge; and PHB between two whose rows name other processors, which virtual machines
  // print for NUMA nodes over one bridge.
  base::Status compare(Machine& machine, const std::vector<int>& numa) {
    std::size_t nearer = 0, farther = 0;  // pairs of each kind
    std::map<std::string, std::uint32_t> ends;
    for (std::size_t i = 0; i < machine.gpus.size(); ++i)
      ends[machine.gpus[i].bus_id] = machine.gpu_end(i);
    for (std::size_t i = 0; i < machine.nics.size(); ++i)
      ends[machine.nics[i].bus_id] = machine.nic_end(i);
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        static constexpr PathClass kOf[] = {PathClass::kLoc, PathClass::kNvl, PathClass::kPix,
                                            PathClass::kPxb, PathClass::kPhb, PathClass::kPhb,
                                            PathClass::kSys};
        const PathClass wanted = kOf[static_cast<std::size_t>(rows_[i].cells[j])];
        const std::uint32_t a = std::min(ends[rows_[i].name], ends[rows_[j].name]),
                            b = std::max(ends[rows_[i].name], ends[rows_[j].name]);
        const bool to_nic = a < machine.gpus.size() && b >= machine.gpus.size();
        const PathClass got =
            to_nic ? machine.direct_path(a, b - machine.gpus.size()).cls : machine.path(a, b).cls;
        if (wanted == PathClass::kSys && got == PathClass::kPhb && numa[i] == numa[j]) {
          if (nearer++ == 0)
            machine.guesses.push_back(
                fmt::format("{} to {} is SYS, but both are at NUMA node {}: assuming PHB",
                            rows_[i].name, rows_[j].name, numa[i]));
          continue;
        }
        if (wanted == PathClass::kPhb && got == PathClass::kSys && numa[i] != numa[j]) {
          if (farther++ == 0)
            machine.guesses.push_back(fmt::format(
                "{} to {} is PHB or NODE, but they are at NUMA nodes {} and {}: assuming SYS",
                rows_[i].name, rows_[j].name, numa[i], numa[j]));
          continue;
        }
        line_ = rows_[i].line;
        if (got != wanted && !(got == PathClass::kNvb && wanted > PathClass::kNvb))
          return fail(fmt::format("{} to {} is {}, but the other pairs make it {}", rows_[i].name,
                                  rows_[j].name, path_class_name(wanted), path_class_name(got)));
      }
    }
    return {};
  }

  [[nodiscard]] base::Status fail(std::string_view what) const {
    return input_error(source_, line_, what);
  }

  const std::string& source_;
  std::size_t line_ = 0;
  const SmiMatrix matrix_;
  const std::vector<SmiRow>& rows_;
};

}  // namespace

base::Result<Machine> parse_nvidia_smi(std::string_view text, const std::string& source) {
  if (text.size() > kMaxTopologyBytes) return input_error(source, 0, "exceeds the size limit");
  REGROUP_ASSIGN_OR_RETURN(auto matrix, read_smi_matrix(text, source));
  return MatrixReader(std::move(matrix), source).read();
}

}  // namespace regroup::topology
