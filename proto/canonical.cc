// Walks from the root; V is at most 16,384, so no table is kept.
#include "proto/canonical.h"

namespace regroup::proto {
namespace {

void cover(Interval node, Interval want, std::vector<Interval>* out) {
  if (node.end <= want.begin || want.end <= node.begin) return;
  if (want.begin <= node.begin && node.end <= want.end) {
    out->push_back(node);
    return;
  }
  const std::uint32_t m = canonical_split(node);
  cover({node.begin, m}, want, out);
  cover({m, node.end}, want, out);
}

}  // namespace

bool is_canonical_node(std::uint32_t leaves, Interval interval) {
  if (interval.begin >= interval.end || interval.end > leaves) return false;
  return interval == Interval{0, leaves} || canonical_parent(leaves, interval).has_value();
}

std::optional<Interval> canonical_parent(std::uint32_t leaves, Interval node) {
  Interval at{0, leaves};
  while (at.size() >= 2 && at != node) {
    const std::uint32_t m = canonical_split(at);
    const Interval child = node.begin < m ? Interval{at.begin, m} : Interval{m, at.end};
    if (child == node) return at;
    at = child;
  }
  return std::nullopt;
}

std::vector<Interval> canonical_cover(std::uint32_t leaves, Interval interval) {
  std::vector<Interval> out;
  if (leaves > 0 && interval.begin < interval.end) cover({0, leaves}, interval, &out);
  return out;
}

}  // namespace regroup::proto
