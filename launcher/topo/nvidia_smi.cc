// The matrix tells classes only. Groups of PIX are a switch, groups of PXB switches below one, NUMA nodes are
// in a column of their own; NV# hides what PCIe does, so such a GPU's place comes from its pairs with NICs.
#include "launcher/topo/nvidia_smi.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "launcher/topo/machine_builder.h"
#include "launcher/topo/text_input.h"

namespace regroup::launcher {
namespace {

enum class Cell { kSelf, kNvlink, kPix, kPxb, kPhb, kNode, kSys };

struct Row {
  std::string name;
  std::size_t line = 0;
  std::vector<Cell> cells;
  std::vector<std::uint32_t> nvlinks;  // by column; 0 but for kNvlink
  std::vector<int> cpus;
  int numa = -1;
};

// Without the escapes that underline the header.
std::string plain(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\x1b') {
      out += text[i];
      continue;
    }
    while (i < text.size() && text[i] != 'm') ++i;
  }
  return out;
}

bool is_device(std::string_view name) {
  if (name.starts_with("mlx")) return true;  // as older ones call a NIC
  return (name.starts_with("GPU") || name.starts_with("NIC")) &&
         whole_number(name.substr(3), 0, 65535).has_value();
}

class MatrixReader {
 public:
  explicit MatrixReader(const std::string& source) : source_(source) {}

  core::Result<Machine> read(std::string_view text) {
    const std::string clean = plain(text);
    std::size_t number = 0;
    for (const std::string_view line : split(clean, '\n')) {
      line_ = ++number;
      REGROUP_RETURN_IF_ERROR(read_line(line));
    }
    line_ = 0;
    if (rows_.empty()) return fail("no row of a GPU");
    if (rows_.size() != columns_.size())
      return fail(fmt::format("{} rows for {} columns", rows_.size(), columns_.size()));
    REGROUP_RETURN_IF_ERROR(check());
    return build();
  }

 private:
  [[nodiscard]] core::Status fail(std::string_view what) const { return input_error(source_, line_, what); }

  core::Status read_line(std::string_view line) {
    std::vector<std::string_view> cells = split(line, '\t');
    for (std::string_view& cell : cells) cell = trimmed(cell);
    const std::string_view first = cells[0];
    if (const std::size_t colon = first.find(": ");
        first.starts_with("NIC") && colon != std::string_view::npos) {
      nic_names_[std::string(first.substr(0, colon))] = first.substr(colon + 2);
      return {};
    }
    if (first.empty() && columns_.empty()) return read_header(cells);
    if (is_device(first) && !columns_.empty()) return read_row(cells);
    return {};
  }

  core::Status read_header(const std::vector<std::string_view>& cells) {
    for (std::size_t i = 1; i < cells.size() && is_device(cells[i]); ++i) columns_.emplace_back(cells[i]);
    if (columns_.size() > kMaxEnds) return fail(fmt::format("more than {} columns", kMaxEnds));
    return {};
  }

  core::Status read_row(const std::vector<std::string_view>& cells) {
    if (rows_.size() == columns_.size() || columns_[rows_.size()] != cells[0])
      return fail(fmt::format("row '{}' is not column {}", cells[0], rows_.size() + 1));
    if (cells.size() <= columns_.size())
      return fail(fmt::format("{} cells for {} columns", cells.size() - 1, columns_.size()));
    Row row;
    row.name = cells[0];
    row.line = line_;
    row.nvlinks.resize(columns_.size());
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const std::string_view word = cells[i + 1];
      static const std::map<std::string_view, Cell> kWords = {
          {"X", Cell::kSelf},    {"PIX", Cell::kPix}, {"PXB", Cell::kPxb}, {"PHB", Cell::kPhb},
          {"NODE", Cell::kNode}, {"SYS", Cell::kSys}, {"SOC", Cell::kSys}};
      const auto known = kWords.find(word);
      if (known != kWords.end()) {
        row.cells.push_back(known->second);
        continue;
      }
      const auto links = word.starts_with("NV") ? whole_number(word.substr(2), 1, 64) : std::nullopt;
      if (!links)
        return fail(fmt::format("'{}' is none of X, NV#, PIX, PXB, PHB, NODE, SYS", word.substr(0, 20)));
      row.cells.push_back(Cell::kNvlink);
      row.nvlinks[i] = static_cast<std::uint32_t>(*links);
    }
    const auto after = [&](std::size_t i) {
      return columns_.size() + i < cells.size() ? cells[columns_.size() + i] : std::string_view();
    };
    row.cpus = number_list(after(1), kMaxCpu).value_or(std::vector<int>());
    row.numa = static_cast<int>(whole_number(after(2), 0, kMaxCpu).value_or(-1));
    rows_.push_back(std::move(row));
    return {};
  }

  core::Status check() {
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      line_ = rows_[i].line;
      if (rows_[i].cells[i] != Cell::kSelf) return fail(fmt::format("{} is not X to itself", rows_[i].name));
      for (std::size_t j = 0; j < i; ++j) {
        if (rows_[i].cells[j] == rows_[j].cells[i] && rows_[i].nvlinks[j] == rows_[j].nvlinks[i] &&
            rows_[i].cells[j] != Cell::kSelf)
          continue;
        return fail(fmt::format("{} to {} is not what {} is to {}", rows_[i].name, rows_[j].name,
                                rows_[j].name, rows_[i].name));
      }
    }
    return {};
  }

  // By device, the smallest one that it is joined with by pairs no worse than `worst`.
  std::vector<std::size_t> groups(Cell worst) const {
    std::vector<std::size_t> out(rows_.size());
    std::iota(out.begin(), out.end(), 0);
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t i = 0; i < rows_.size(); ++i) {
        for (std::size_t j = 0; j < rows_.size(); ++j) {
          const Cell cell = rows_[i].cells[j];
          if (cell < Cell::kPix || cell > worst || out[j] <= out[i]) continue;
          out[j] = out[i];
          changed = true;
        }
      }
    }
    return out;
  }

  core::Result<Machine> build() {
    MachineParts parts;
    parts.source = source_;
    parts.guesses = {"`nvidia-smi topo -m` tells neither products nor PCIe speeds: generation 3 is taken"};
    const std::vector<std::size_t> leaf = groups(Cell::kPix), top = groups(Cell::kPxb),
                                   near = groups(Cell::kNode);
    const std::vector<int> numas = numa_numbers(near);
    std::map<int, NumaNode> nodes;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      NumaNode& node = nodes[numas[i]];
      node.number = numas[i];
      node.package = static_cast<std::uint32_t>(numas[i]);
      if (node.cpus.empty()) node.cpus = rows_[i].cpus;
      parts.devices.push_back(device(i, leaf, top, numas[i]));
    }
    for (auto& [number, node] : nodes) parts.numas.push_back(std::move(node));
    add_nvlinks(parts);
    auto machine = build_machine(std::move(parts));
    if (!machine.ok()) return machine;
    REGROUP_RETURN_IF_ERROR(compare(*machine));
    for (Gpu& gpu : machine->gpus) gpu.bus_id.clear();
    for (Nic& nic : machine->nics) nic.bus_id.clear();
    return machine;
  }

  // The column, or that of a device in the same group; groups that no column names are nodes of their own.
  std::vector<int> numa_numbers(const std::vector<std::size_t>& near) const {
    std::map<std::size_t, int> of_group;
    int next = 0;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      next = std::max(next, rows_[i].numa + 1);
      if (rows_[i].numa >= 0) of_group.emplace(near[i], rows_[i].numa);
    }
    std::vector<int> out;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      if (rows_[i].numa >= 0) {
        out.push_back(rows_[i].numa);
        continue;
      }
      const auto [at, fresh] = of_group.emplace(near[i], next);
      if (fresh) ++next;
      out.push_back(at->second);
    }
    return out;
  }

  PciDevice device(std::size_t i, const std::vector<std::size_t>& leaf, const std::vector<std::size_t>& top,
                   int numa) {
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
    const auto named = nic_names_.find(rows_[i].name);
    nic.name = named == nic_names_.end() ? rows_[i].name : named->second;
    nic.kind = NicKind::kInfiniband;
    out.ports.push_back(std::move(nic));
    return out;
  }

  static bool top_is_wider(const std::vector<std::size_t>& leaf, const std::vector<std::size_t>& top,
                           std::size_t i) {
    for (std::size_t j = 0; j < top.size(); ++j) {
      if (top[j] == top[i] && leaf[j] != leaf[i]) return true;
    }
    return false;
  }

  // NVLinks that one GPU would need if all were direct.
  std::uint32_t most_links() const {
    std::uint32_t most = 0;
    for (const Row& row : rows_)
      most = std::max(most, std::accumulate(row.nvlinks.begin(), row.nvlinks.end(), 0U));
    return most;
  }

  static constexpr std::uint32_t kMostLinks = 18;  // of any GPU

  std::string arch() const {
    std::uint32_t links = 0;
    for (const Row& row : rows_) {
      for (const std::uint32_t n : row.nvlinks) links = std::max(links, n);
    }
    return links == 0 ? "" : links >= 18 ? "sm90" : links >= 7 ? "sm80" : "sm70";
  }

  void add_nvlinks(MachineParts& parts) const {
    const bool switched = most_links() > kMostLinks;
    for (const Row& row : rows_) {
      const std::uint32_t widest = *std::max_element(row.nvlinks.begin(), row.nvlinks.end());
      if (switched && widest > 0)
        parts.links.push_back({LinkKind::kNvlink, row.name, GpuLink::To::kSwitch, "", widest, row.line});
      for (std::size_t j = 0; !switched && j < rows_.size(); ++j) {
        if (row.nvlinks[j] > 0)
          parts.links.push_back(
              {LinkKind::kNvlink, row.name, GpuLink::To::kGpu, rows_[j].name, row.nvlinks[j], row.line});
      }
    }
    if (!arch().empty())
      parts.guesses.push_back(fmt::format("by the number of NVLinks the GPUs are taken for {}", arch()));
    if (switched) parts.guesses.emplace_back("no GPU has that many NVLinks: they go to NVSwitches");
  }

  // What was built has the classes that were read.
  core::Status compare(const Machine& machine) {
    std::map<std::string, std::uint32_t> ends;
    for (std::size_t i = 0; i < machine.gpus.size(); ++i) ends[machine.gpus[i].bus_id] = machine.gpu_end(i);
    for (std::size_t i = 0; i < machine.nics.size(); ++i) ends[machine.nics[i].bus_id] = machine.nic_end(i);
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
        line_ = rows_[i].line;
        if (got != wanted && !(got == PathClass::kNvb && wanted > PathClass::kNvb))
          return fail(fmt::format("{} to {} cannot be {} beside the other pairs, which make it {}",
                                  rows_[i].name, rows_[j].name, path_class_name(wanted),
                                  path_class_name(got)));
      }
    }
    return {};
  }

  const std::string& source_;
  std::size_t line_ = 0;
  std::vector<std::string> columns_;
  std::vector<Row> rows_;
  std::map<std::string, std::string> nic_names_;
};

}  // namespace

bool looks_like_nvidia_smi(std::string_view text) {
  const std::string start = plain(text.substr(0, 4096));
  const std::size_t gpu = start.find("GPU0");
  return gpu != std::string::npos && trimmed(std::string_view(start).substr(0, gpu)).empty() &&
         start.find('\t') < gpu;
}

core::Result<Machine> parse_nvidia_smi(std::string_view text, const std::string& source) {
  if (text.size() > kMaxTopologyBytes) return input_error(source, 0, "longer than is read");
  return MatrixReader(source).read(text);
}

}  // namespace regroup::launcher
