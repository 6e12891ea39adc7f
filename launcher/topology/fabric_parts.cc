// Visits the tree from its roots, since parents come first in a Fabric; parts that are never
// reached form a cycle.
#include "launcher/topology/fabric_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "launcher/spec/host_list.h"
#include "launcher/topology/text_input.h"

namespace regroup::topology {
namespace {

class FabricBuilder {
 public:
  FabricBuilder(std::vector<FabricPart> parts, const std::string& source)
      : parts_(std::move(parts)), source_(source) {}

  base::Result<Fabric> build(const Machine& machine) {
    out_.machines.push_back(machine);
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (!index_.emplace(parts_[i].name, i).second)
        return fail(parts_[i], fmt::format("'{}' is defined twice", parts_[i].name));
    }
    REGROUP_RETURN_IF_ERROR(find_parents());
    REGROUP_RETURN_IF_ERROR(lay_out());
    for (FabricPart& part : parts_) REGROUP_RETURN_IF_ERROR(add_hosts(part));
    set_levels();
    return std::move(out_);
  }

 private:
  [[nodiscard]] base::Status fail(const FabricPart& part, std::string_view what) const {
    return input_error(source_, part.line, what);
  }

  base::Status find_parents() {
    for (const FabricPart& part : parts_) {
      for (const std::string& child : part.children) {
        const auto found = index_.find(child);
        if (found == index_.end())
          return fail(part, fmt::format("switch '{}' below '{}' is not defined", child, part.name));
        std::string& parent = parts_[found->second].parent;
        if (!parent.empty() && parent != part.name)
          return fail(part, fmt::format("'{}' is below '{}' and below '{}'; expected one parent",
                                        child, parent, part.name));
        parent = part.name;
      }
    }
    for (const FabricPart& part : parts_) {
      if (!part.parent.empty() && index_.count(part.parent) == 0)
        return fail(part, fmt::format("'{}' above '{}' is not defined", part.parent, part.name));
    }
    return {};
  }

  base::Status lay_out() {
    std::map<std::string, std::vector<std::size_t>> below;
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < parts_.size(); ++i) below[parts_[i].parent].push_back(i);
    order = below[""];
    for (std::size_t i = 0; i < order.size(); ++i) {
      const auto& children = below[parts_[order[i]].name];
      order.insert(order.end(), children.begin(), children.end());
    }
    node_of_.assign(parts_.size(), kNoPart);
    for (const std::size_t i : order) {
      const FabricPart& part = parts_[i];
      node_of_[i] = static_cast<std::uint32_t>(out_.nodes.size());
      const std::uint32_t parent = part.parent.empty() ? kNoPart : node_of_[index_.at(part.parent)];
      out_.nodes.push_back(
          {part.name, part.kind, parent, 0, part.up_gbytes, part.host_gbytes, part.rails});
    }
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (node_of_[i] == kNoPart)
        return fail(parts_[i], fmt::format("'{}' is below itself", parts_[i].name));
    }
    return {};
  }

  base::Status add_hosts(const FabricPart& part) {
    const std::uint32_t node = node_of_[index_.at(part.name)];
    for (const std::string& name : part.hosts) {
      const auto [at, fresh] = hosts_.emplace(name, out_.hosts.size());
      if (fresh) out_.hosts.push_back({name});
      if (out_.hosts.size() > spec::kMostHosts)
        return fail(part, fmt::format("more than {} hosts", spec::kMostHosts));
      FabricHost& host = out_.hosts[at->second];
      std::uint32_t& place = part.kind == FabricKind::kNvlink ? host.nvlink : host.leaf;
      if (place != kNoPart)
        return fail(part, fmt::format("host {} is at '{}' and at '{}'; expected one switch", name,
                                      out_.nodes[place].name, part.name));
      place = node;
    }
    return {};
  }

  void set_levels() {
    for (std::size_t i = out_.nodes.size(); i-- > 0;) {
      const FabricNode& node = out_.nodes[i];
      if (node.parent != kNoPart)
        out_.nodes[node.parent].level = std::max(out_.nodes[node.parent].level, node.level + 1);
    }
  }

  std::vector<FabricPart> parts_;
  const std::string& source_;
  std::map<std::string, std::size_t> index_;  // by name, its part
  std::vector<std::uint32_t> node_of_;        // by part
  std::map<std::string, std::size_t> hosts_;  // by name
  Fabric out_;
};

}  // namespace

base::Result<Fabric> build_fabric(std::vector<FabricPart> parts, const Machine& machine,
                                  const std::string& source) {
  return FabricBuilder(std::move(parts), source).build(machine);
}

}  // namespace regroup::topology
