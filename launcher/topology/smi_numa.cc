// Distinguishes NUMA nodes by their processors. The NUMA column is not sufficient: it may be N/A,
// or list nodes without processors (the memory of a GPU of Grace), or all nodes (in virtual
// machines).
#include <algorithm>
#include <bitset>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "launcher/topology/smi_matrix.h"
#include "launcher/topology/text_input.h"

namespace regroup::topology {
namespace {

using Cpus = std::bitset<std::size_t{kMaxCpu} + 1>;

struct Node {
  Cpus cpus;
  std::optional<int> number;  // if some row names this number alone
  std::vector<std::size_t> rows;
};

class NumaFinder {
 public:
  explicit NumaFinder(const SmiMatrix& matrix)
      : rows_(matrix.rows), near_(smi_groups(matrix, SmiCell::kNode)), node_of_(rows_.size()) {}

  SmiNumas find() {
    place_by_processors();
    place_by_number();
    place_by_pairs();
    return numbered();
  }

 private:
  using Index = std::size_t;

  static bool within(const Cpus& some, const Cpus& all) { return (some & ~all).none(); }

  void place(Index row, Index node) {
    node_of_[row] = node;
    nodes_[node].rows.push_back(row);
  }

  // A list that contains another list is that of a device close to several nodes.
  void place_by_processors() {
    std::vector<Cpus> of(rows_.size());
    std::vector<Index> wide;
    for (Index i = 0; i < rows_.size(); ++i) {
      for (const int cpu : rows_[i].cpus) of[i].set(static_cast<std::size_t>(cpu));
    }
    for (Index i = 0; i < rows_.size(); ++i) {
      if (rows_[i].cpus.empty()) continue;
      const bool holds_another = std::ranges::any_of(of, [&](const Cpus& other) {
        return other.any() && other != of[i] && within(other, of[i]);
      });
      if (holds_another) {
        wide.push_back(i);
      } else {
        place(i, node_with(of[i], alone(rows_[i])));
      }
    }
    for (const Index i : wide) place(i, one_of_several(i, of[i]));
  }

  static std::optional<int> alone(const SmiRow& row) {
    return row.numas.size() == 1 ? std::optional(row.numas[0]) : std::nullopt;
  }

  // Lists that overlap, or have the same number, belong to one node.
  Index node_with(const Cpus& cpus, std::optional<int> number) {
    std::optional<Index> found;
    for (Index i = 0; i < nodes_.size(); ++i) {
      Node& node = nodes_[i];
      const bool same_number = number && node.number == number;
      if (!same_number && (node.cpus & cpus).none()) continue;
      if (!found) {
        found = i;
        node.cpus |= cpus;
        if (!node.number) node.number = number;
        continue;
      }
      merge(node, *found);
    }
    if (found) return *found;
    nodes_.push_back({cpus, number, {}});
    return nodes_.size() - 1;
  }

  void merge(Node& from, Index into) {
    Node& to = nodes_[into];
    to.cpus |= from.cpus;
    if (!to.number) to.number = from.number;
    for (const Index row : from.rows) place(row, into);
    from = {};
  }

  Index one_of_several(Index row, const Cpus& cpus) const {
    const auto fits = [&](const Node& node) { return (node.cpus & cpus).any(); };
    const auto number = alone(rows_[row]);
    for (Index i = 0; i < nodes_.size() && number; ++i) {
      if (fits(nodes_[i]) && nodes_[i].number == number) return i;
    }
    if (const auto node = node_of_group(row); node && fits(nodes_[*node])) return *node;
    for (Index i = 0; i < nodes_.size(); ++i) {
      if (fits(nodes_[i]) && !is_apart({row}, nodes_[i])) return i;
    }
    const auto first = std::ranges::find_if(nodes_, fits);  // exists: the list contains another
    return static_cast<Index>(first - nodes_.begin());
  }

  void place_by_number() {
    for (Index i = 0; i < rows_.size(); ++i) {
      if (node_of_[i] || rows_[i].numas.empty()) continue;
      const std::vector<int>& numbers = rows_[i].numas;
      const auto known = std::ranges::find_if(nodes_, [&](const Node& node) {
        return node.number && std::ranges::binary_search(numbers, *node.number);
      });
      const auto node = static_cast<Index>(known - nodes_.begin());
      if (node == nodes_.size()) nodes_.push_back({{}, numbers.front(), {}});
      place(i, node);
    }
  }

  // SYS means different nodes; NV# says nothing about processors.
  void place_by_pairs() {
    for (Index i = 0; i < rows_.size(); ++i) {
      if (node_of_[i]) continue;
      std::vector<Index> group;
      for (Index j = i; j < rows_.size(); ++j) {
        if (near_[j] == near_[i] && !node_of_[j]) group.push_back(j);
      }
      std::optional<Index> node = node_of_group(i);
      for (Index j = 0; j < nodes_.size() && !node; ++j) {
        if (!nodes_[j].rows.empty() && !is_apart(group, nodes_[j])) node = j;
      }
      if (!node) nodes_.emplace_back();
      for (const Index row : group) place(row, node.value_or(nodes_.size() - 1));
    }
  }

  [[nodiscard]] std::optional<Index> node_of_group(Index row) const {
    for (Index i = 0; i < rows_.size(); ++i) {
      if (near_[i] == near_[row] && node_of_[i]) return node_of_[i];
    }
    return std::nullopt;
  }

  [[nodiscard]] bool is_apart(const std::vector<Index>& group, const Node& node) const {
    return std::ranges::any_of(group, [&](Index row) {
      return std::ranges::any_of(
          node.rows, [&](Index other) { return rows_[row].cells[other] == SmiCell::kSys; });
    });
  }

  // The number that a row names alone; else the first unused one of its list; else a new one.
  SmiNumas numbered() {
    std::erase_if(nodes_,
                  [](const Node& node) { return node.rows.empty(); });  // was merged into another
    std::set<int> taken;
    for (const Node& node : nodes_) {
      if (node.number) taken.insert(*node.number);
    }
    for (Node& node : nodes_) {
      for (const Index row : node.rows) {
        const auto free = std::ranges::find_if(rows_[row].numas,
                                               [&](int number) { return !taken.contains(number); });
        if (!node.number && free != rows_[row].numas.end()) node.number = *free;
      }
      if (node.number) taken.insert(*node.number);
    }
    SmiNumas out;
    out.of_row.resize(rows_.size());
    for (Node& node : nodes_) {
      if (!node.number) node.number = taken.empty() ? 0 : *taken.rbegin() + 1;
      taken.insert(*node.number);
      for (const Index row : node.rows) out.of_row[row] = *node.number;
      std::vector<int>& cpus = out.cpus[*node.number];
      for (std::size_t cpu = 0; cpu < node.cpus.size(); ++cpu) {
        if (node.cpus[cpu]) cpus.push_back(static_cast<int>(cpu));
      }
    }
    return out;
  }

  const std::vector<SmiRow>& rows_;
  const std::vector<std::size_t> near_;
  std::vector<Node> nodes_;
  std::vector<std::optional<Index>> node_of_;
};

}  // namespace

std::vector<std::size_t> smi_groups(const SmiMatrix& matrix, SmiCell worst) {
  const std::vector<SmiRow>& rows = matrix.rows;
  std::vector<std::size_t> out(rows.size());
  std::iota(out.begin(), out.end(), 0);
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (std::size_t j = 0; j < rows.size(); ++j) {
        const SmiCell cell = rows[i].cells[j];
        if (cell < SmiCell::kPix || cell > worst || out[j] <= out[i]) continue;
        out[j] = out[i];
        changed = true;
      }
    }
  }
  return out;
}

SmiNumas smi_numas(const SmiMatrix& matrix) { return NumaFinder(matrix).find(); }

}  // namespace regroup::topology
