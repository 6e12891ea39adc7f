// Lays out from the leaves up: a bar is as wide as the nodes attached to it, so links are vertical
// and never cross.
#include "tools/topo/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "launcher/topology/machine_view.h"

namespace regroup::topo {
namespace {

using topology::Link;
using topology::LinkKind;
using topology::Machine;
using topology::NodeKind;

constexpr Colour kInk{35, 40, 48}, kFaint{110, 118, 129}, kWhite{255, 255, 255};
constexpr Colour kNuma{221, 229, 243}, kNumaEdge{120, 144, 190}, kSwitch{241, 238, 226},
    kSwitchEdge{178, 166, 120};
constexpr Colour kGpu{226, 242, 226}, kGpuEdge{74, 150, 84}, kNic{222, 240, 246},
    kNicEdge{70, 145, 170};
constexpr Colour kPci{160, 148, 104}, kSys{192, 80, 72}, kC2c{120, 80, 170},
    kNvSwitch{205, 232, 205}, kRank{216, 96, 40};
constexpr Colour kLanes[] = {
    {140, 200, 140}, {48, 150, 64}, {0, 92, 40}};  // by how many are bonded

constexpr double kMargin = 28, kGap = 14, kGpuWidth = 96, kNicWidth = 84, kBar = 30, kLevel = 72,
                 kLeaf = 58, kTop = 96;

std::string gbytes_text(double gbytes) {
  return gbytes >= 100 ? fmt::format("{:.0f}", gbytes) : fmt::format("{:.3g}", gbytes);
}

class Layout {
 public:
  Layout(const Machine& machine, const std::vector<int>& ranks)
      : machine_(machine), ranks_(ranks) {}

  Picture make() {
    up_.resize(machine_.nodes.size());
    for (const Link& link : machine_.links) {
      if (link.kind == LinkKind::kPci) up_[link.a] = &link;
    }
    boxes_.resize(machine_.nodes.size());
    for (std::uint32_t node = 0; node < machine_.nodes.size(); ++node) {
      if (kind(node) == NodeKind::kNuma) deepest_ = std::max(deepest_, depth(node));
    }
    double left = kMargin;
    for (std::uint32_t node = 0; node < machine_.nodes.size(); ++node) {
      if (kind(node) == NodeKind::kNuma) left += place(node, left, 0) + 2 * kGap;
    }
    out_.width = std::max(left - 2 * kGap + kMargin, 560.0);
    bottom_ = kTop + (deepest_ * kLevel) + kLeaf;
    draw_title();
    draw_numa_links();
    draw_nodes();
    draw_c2c();
    draw_nvswitches();
    draw_pairs();
    draw_legend();
    return std::move(out_);
  }

 private:
  [[nodiscard]] NodeKind kind(std::uint32_t node) const { return machine_.nodes[node].kind; }
  [[nodiscard]] bool is_leaf(std::uint32_t node) const {
    return kind(node) == NodeKind::kGpu || kind(node) == NodeKind::kNic;
  }

  // Levels below this node, leaves included.
  [[nodiscard]] int depth(std::uint32_t node) const {
    int out = 0;
    for (const std::uint32_t child : children_[node]) out = std::max(out, 1 + depth(child));
    return out;
  }

  // Returns its width. Leaves all stand in the last row.
  double place(std::uint32_t node, double left, int level) {
    Box& box = boxes_[node];
    if (is_leaf(node)) {
      box = {left,
             kTop + deepest_ * kLevel,
             kind(node) == NodeKind::kGpu ? kGpuWidth : kNicWidth,
             kLeaf,
             {},
             {}};
      return box.width;
    }
    double width = 0;
    for (const std::uint32_t child : children_[node])
      width += place(child, left + width, level + 1) + kGap;
    const double least = kind(node) == NodeKind::kNuma ? 150 : kNicWidth;
    box = {left, kTop + level * kLevel, std::max(width - kGap, least), kBar, {}, {}};
    return box.width;
  }

  static double middle(const Box& box) { return box.x + box.width / 2; }

  void label(Point at, std::string text, double size, Colour colour, double most = 1e9,
             bool bold = false) {
    out_.labels.push_back({at, std::move(text), size, bold, colour, most});
  }

  void draw_title() {
    label({out_.width / 2, 26}, machine_.name.empty() ? "machine" : machine_.name, 18, kInk,
          out_.width - 40, true);
    label({out_.width / 2, 47},
          fmt::format("{} GPUs, {} NICs, {} NUMA nodes; GB/s each way", machine_.gpus.size(),
                      machine_.nics.size(), machine_.numas.size()),
          11, kFaint, out_.width - 40);
  }

  // All NUMA nodes are linked with each other: one line above them shows the bandwidth.
  void draw_numa_links() {
    double narrowest = 0;
    for (const Link& link : machine_.links) {
      if (link.kind == LinkKind::kSys)
        narrowest = narrowest == 0 ? link.gbytes : std::min(narrowest, link.gbytes);
    }
    if (narrowest == 0) return;
    constexpr double kY = kTop - 18;
    double first = out_.width, last = 0;
    for (std::uint32_t node = 0; node < machine_.nodes.size(); ++node) {
      if (kind(node) != NodeKind::kNuma) continue;
      const double x = middle(boxes_[node]);
      first = std::min(first, x);
      last = std::max(last, x);
      out_.strokes.push_back({{x, kY}, {x, kTop}, kSys, 2.5});
    }
    out_.strokes.push_back({{first, kY}, {last, kY}, kSys, 2.5});
    label({(first + last) / 2, kY - 9},
          fmt::format("between NUMA nodes {}", gbytes_text(narrowest)), 10, kSys);
  }

  void draw_nodes() {
    for (std::uint32_t node = 0; node < machine_.nodes.size(); ++node) {
      if (kind(node) == NodeKind::kNvSwitch) continue;
      if (up_[node] != nullptr) draw_uplink(node, *up_[node]);
      switch (kind(node)) {
        case NodeKind::kGpu:
          draw_gpu(node);
          break;
        case NodeKind::kNic:
          draw_nic(node);
          break;
        default:
          draw_bar(node);
          break;
      }
    }
  }

  void draw_uplink(std::uint32_t node, const Link& link) {
    const Box &box = boxes_[node], &above = boxes_[link.b];
    const double x = middle(box);
    out_.strokes.push_back(
        {{x, above.y + above.height}, {x, box.y}, kPci, std::clamp(link.gbytes / 10, 1.2, 6.0)});
    if (link.gbytes < 1000) {  // a larger number stands for an unknown bandwidth
      out_.labels.push_back(
          {{x + 6, box.y - 11}, gbytes_text(link.gbytes), 9.5, false, kFaint, 60, true});
    }
  }

  void draw_bar(std::uint32_t node) {
    Box box = boxes_[node];
    const bool numa = kind(node) == NodeKind::kNuma;
    box.fill = numa ? kNuma : kSwitch;
    box.stroke = numa ? kNumaEdge : kSwitchEdge;
    const std::uint32_t index = machine_.nodes[node].index;
    std::string text = "card";
    if (numa) {
      const topology::NumaNode& it = machine_.numas[index];
      text = fmt::format("NUMA node {}", it.number);
      if (static_cast<int>(it.package) != it.number)
        text += fmt::format(", package {}", it.package);
    } else if (kind(node) == NodeKind::kPciSwitch) {
      const std::string full = "switch " + machine_.pci_switches[index].name;
      text = box.width < 120 ? machine_.pci_switches[index].name : full;
    }
    label({middle(box), box.y + box.height / 2}, std::move(text), 11, kInk, box.width - 10, numa);
    out_.boxes.push_back(box);
  }

  void draw_gpu(std::uint32_t node) {
    Box box = boxes_[node];
    box.fill = kGpu;
    box.stroke = kGpuEdge;
    const std::uint32_t index = machine_.nodes[node].index;
    const topology::Gpu& gpu = machine_.gpus[index];
    const double x = middle(box), most = box.width - 10;
    label({x, box.y + 15}, fmt::format("GPU {}", gpu.number), 12, kInk, most, true);
    label({x, box.y + 31}, gpu.product.empty() ? gpu.arch : gpu.product, 9.5, kInk, most);
    label({x, box.y + 45}, gpu.bus_id.empty() ? gpu.arch : gpu.bus_id, 9, kFaint, most);
    out_.boxes.push_back(box);
    if (index >= ranks_.size() || ranks_[index] < 0) return;
    out_.boxes.push_back({box.x - 7, box.y - 9, 26, 20, kRank, kWhite, 10});
    label({box.x + 6, box.y + 1}, fmt::format("{}", ranks_[index]), 11, kWhite, 22, true);
  }

  void draw_nic(std::uint32_t node) {
    Box box = boxes_[node];
    box.fill = kNic;
    box.stroke = kNicEdge;
    const topology::Nic& nic = machine_.nics[machine_.nodes[node].index];
    const double x = middle(box), most = box.width - 8;
    label({x, box.y + 15}, nic.name, 11, kInk, most, true);
    label({x, box.y + 31},
          fmt::format("{}{}{}", topology::nic_kind_name(nic.kind),
                      nic.gbits > 0 ? fmt::format(" {:g}G", nic.gbits) : "", nic.up ? "" : " down"),
          9.5, kInk, most);
    if (nic.bus_id != nic.name) label({x, box.y + 45}, nic.bus_id, 9, kFaint, most);
    out_.boxes.push_back(box);
  }

  // To the processor beside PCIe: right of the middle.
  void draw_c2c() {
    for (const Link& link : machine_.links) {
      const bool down = kind(link.a) == NodeKind::kNuma;
      const std::uint32_t gpu = down ? link.b : link.a, numa = down ? link.a : link.b;
      if (link.kind == LinkKind::kPci || kind(gpu) != NodeKind::kGpu ||
          kind(numa) != NodeKind::kNuma)
        continue;
      const Colour colour = link.kind == LinkKind::kC2c ? kC2c : kLanes[1];
      const double x = boxes_[gpu].x + boxes_[gpu].width - 14,
                   top = boxes_[numa].y + boxes_[numa].height;
      out_.strokes.push_back({{x, top}, {x, boxes_[gpu].y}, colour, 4});
      out_.labels.push_back(
          {{x - 7 - 22, top + 13}, gbytes_text(link.gbytes), 9.5, false, colour, 40, true});
      legend_[link.kind == LinkKind::kC2c ? "C2C to the processor" : "NVLink to the processor"] =
          colour;
    }
  }

  void draw_nvswitches() {
    std::map<std::uint32_t, std::vector<const Link*>> domains;
    for (const Link& link : machine_.links) {
      if (kind(link.b) == NodeKind::kNvSwitch) domains[link.b].push_back(&link);
    }
    for (const auto& [domain, links] : domains) {
      double first = out_.width, last = 0;
      const double y = bottom_ + 44;
      for (const Link* link : links) {
        const Box& gpu = boxes_[link->a];
        first = std::min(first, gpu.x);
        last = std::max(last, gpu.x + gpu.width);
        out_.strokes.push_back({{middle(gpu), gpu.y + gpu.height}, {middle(gpu), y}, kLanes[2], 4});
        out_.labels.push_back({{middle(gpu) + 7, y - 22},
                               fmt::format("x{}", link->lanes),
                               9.5,
                               false,
                               kFaint,
                               60,
                               true});
      }
      legend_["NVLink to NVSwitches"] = kLanes[2];
      out_.boxes.push_back({first, y, last - first, kBar, kNvSwitch, kGpuEdge});
      label({(first + last) / 2, y + kBar / 2},
            fmt::format("{}: {} links of each GPU, {} GB/s each way",
                        topology::nvswitches_text(machine_), links[0]->lanes,
                        gbytes_text(links[0]->gbytes)),
            11, kInk, last - first - 12, true);
      bottom_ = y + kBar;
    }
  }

  [[nodiscard]] bool is_pair(const Link& link) const {
    return kind(link.a) == NodeKind::kGpu && kind(link.b) == NodeKind::kGpu;
  }

  // Curves below the row of GPUs, each from a place of its own at the edge.
  void draw_pairs() {
    std::map<std::uint32_t, std::vector<std::uint32_t>> peers;  // by GPU, from left to right
    std::uint32_t most = 1;
    for (const Link& link : machine_.links) {
      if (!is_pair(link)) continue;
      peers[link.a].push_back(link.b);
      peers[link.b].push_back(link.a);
      most = std::max(most, link.lanes);
    }
    for (auto& [gpu, others] : peers) {
      std::sort(others.begin(), others.end(),
                [this](std::uint32_t a, std::uint32_t b) { return boxes_[a].x < boxes_[b].x; });
    }
    const auto foot = [&](std::uint32_t gpu, std::uint32_t other) {
      // The curve to the nearest GPU on the right starts at the right edge, so that curves do not
      // cross near their ends.
      const auto& all = peers[gpu];
      const auto rank = std::find(all.begin(), all.end(), other) - all.begin();
      const auto left = std::count_if(all.begin(), all.end(),
                                      [&](std::uint32_t o) { return boxes_[o].x < boxes_[gpu].x; });
      const auto size = static_cast<std::ptrdiff_t>(all.size());
      const auto slot = rank < left ? left - 1 - rank : left + (size - 1 - rank);
      const double step = (boxes_[gpu].width - 16) / std::max<double>(static_cast<double>(size), 1);
      return Point{boxes_[gpu].x + 8 + step * (static_cast<double>(slot) + 0.5),
                   boxes_[gpu].y + boxes_[gpu].height};
    };
    double deepest = 0;
    for (const Link& link : machine_.links) {
      if (!is_pair(link)) continue;
      const bool right = boxes_[link.a].x < boxes_[link.b].x;
      const Point from = foot(right ? link.a : link.b, right ? link.b : link.a),
                  to = foot(right ? link.b : link.a, right ? link.a : link.b);
      const double sag = 16 + 0.16 * (to.x - from.x);
      const std::size_t shade = link.lanes >= 4 ? 2 : link.lanes >= 2 ? 1 : 0;
      out_.strokes.push_back(
          {from, to, kLanes[shade], 1.6 + 0.7 * std::min<double>(link.lanes, 6), sag});
      legend_[fmt::format("{} x{}: {} GB/s", link.kind == LinkKind::kXgmi ? "xGMI" : "NVLink",
                          link.lanes, gbytes_text(link.gbytes))] = kLanes[shade];
      deepest = std::max(deepest, sag);
    }
    bottom_ += deepest;
  }

  void draw_legend() {
    if (std::any_of(up_.begin(), up_.end(), [](const Link* link) { return link != nullptr; }))
      legend_["PCIe"] = kPci;
    double x = kMargin;
    bottom_ += 34;
    for (const auto& [text, colour] : legend_) {
      const double width = 34 + 6.4 * static_cast<double>(text.size());
      if (x + width > out_.width - kMargin && x > kMargin) {
        x = kMargin;
        bottom_ += 20;
      }
      out_.strokes.push_back({{x, bottom_}, {x + 22, bottom_}, colour, 4});
      out_.labels.push_back({{x + 28, bottom_}, text, 10.5, false, kInk, width, true});
      x += width + 14;
    }
    out_.height = bottom_ + 22;
  }

  const Machine& machine_;
  const std::vector<int>& ranks_;
  std::vector<std::vector<std::uint32_t>> children_ = topology::pci_children(machine_);
  std::vector<const Link*> up_;  // by node
  std::vector<Box> boxes_;       // by node
  int deepest_ = 1;
  double bottom_ = 0;
  std::map<std::string, Colour> legend_;
  Picture out_;
};

}  // namespace

Picture picture_of(const topology::Machine& machine, const std::vector<int>& rank_of_gpu) {
  return Layout(machine, rank_of_gpu).make();
}

}  // namespace regroup::topo
