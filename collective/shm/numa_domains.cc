// The sums of a NUMA node are nodes of the canonical tree: the canonical cover of each run of
// consecutive ranks on that NUMA node. A run that is no node of the tree has several sums, and
// perhaps single ranks whose inputs all ranks read directly.
#include "collective/shm/numa_domains.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <utility>

#include "collective/shm/plan.h"
#include "proto/canonical.h"

namespace regroup::collective::shm {
namespace {

namespace fs = std::filesystem;

// Parses the N of an entry named `prefix`N.
std::optional<int> number_of(const fs::path& entry, std::string_view prefix) {
  const std::string name = entry.filename();
  const char* last = name.data() + name.size();
  int number = 0;
  if (!name.starts_with(prefix)) return std::nullopt;
  const auto [stop, error] = std::from_chars(name.data() + prefix.size(), last, number);
  return stop == last && error == std::errc() && number >= 0 ? std::optional<int>(number)
                                                             : std::nullopt;
}

// Calls `use(entry, N)` for each entry `prefix`N of `folder`.
template <class Use>
void for_each_numbered(const fs::path& folder, std::string_view prefix, Use use) {
  std::error_code failure;
  for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    if (const auto number = number_of(entry->path(), prefix)) use(entry->path(), *number);
  }
}

// The size of the largest of the `count` slices into which slice_of() divides `bytes`.
std::size_t largest_slice(std::size_t bytes, std::size_t count) {
  const std::size_t lines = (bytes + reduce::kCacheLine - 1) / reduce::kCacheLine;
  return (lines + count - 1) / count * reduce::kCacheLine;
}

// The index of the slice that contains byte `at`, if slice_of() divides `bytes` into `count`
// slices.
std::size_t slice_at(std::size_t bytes, std::size_t at, std::size_t count) {
  const std::size_t lines = (bytes + reduce::kCacheLine - 1) / reduce::kCacheLine;
  std::size_t index = at / reduce::kCacheLine * count / lines;
  while (reduce::slice_of(bytes, static_cast<int>(index), static_cast<int>(count)).end <= at)
    ++index;
  return index;
}

}  // namespace

NumaNodes::NumaNodes(const fs::path& folder) {
  for_each_numbered(folder, "node", [&](const fs::path& node, int number) {
    for_each_numbered(node, "cpu", [&](const fs::path&, int core) {
      node_of_[static_cast<std::size_t>(core)] = number;
    });
  });
}

const NumaNodes& NumaNodes::of_this_machine() {
  static const NumaNodes kNodes("/sys/devices/system/node");
  return kNodes;
}

std::optional<int> NumaNodes::node_of(std::span<const std::uint64_t> cores) const {
  std::optional<int> all;
  for (std::size_t i = 0; i < cores.size() * 64; ++i) {
    if ((cores[i / 64] >> i % 64 & 1) == 0) continue;
    const auto node = node_of_.find(i);
    if (node == node_of_.end() || (all && *all != node->second)) return std::nullopt;
    all = node->second;
  }
  return all;
}

base::Result<std::optional<TwoLevels>> TwoLevels::make(std::span<const int> nodes, std::size_t rank,
                                                       std::size_t buffer_bytes) {
  const auto ranks = static_cast<std::uint32_t>(nodes.size());
  std::map<int, std::size_t> group_of;
  std::vector<std::vector<std::size_t>> groups;
  for (std::size_t r = 0; r < ranks; ++r) {
    const auto [known, is_new] = group_of.try_emplace(nodes[r], groups.size());
    if (is_new) groups.emplace_back();
    groups[known->second].push_back(r);
  }
  if (groups.size() < 2) return std::optional<TwoLevels>();

  std::vector<Sum> sums;
  std::vector<Term> terms;
  std::vector<proto::Interval> leaves;
  std::vector<std::size_t> made(groups.size());
  for (std::uint32_t begin = 0, end = 0; begin < ranks; begin = end) {
    const auto here = [&](int node) { return node == nodes[begin]; };
    end = static_cast<std::uint32_t>(std::find_if_not(nodes.begin() + begin, nodes.end(), here) -
                                     nodes.begin());
    const std::size_t group = group_of.at(nodes[begin]);
    for (const proto::Interval part : proto::canonical_cover(ranks, {begin, end})) {
      leaves.push_back(part);
      terms.push_back({part.size() > 1, part.size() > 1 ? sums.size() : part.begin});
      if (part.size() == 1) continue;
      std::vector<proto::Interval> own;
      for (std::uint32_t i = 0; i < part.size(); ++i) own.push_back({i, i + 1});
      auto fold = reduce::TreeFold::compile(own, part.size());
      if (!fold.ok()) return fold.status();
      sums.push_back({part.begin, part.size(), group, made[group]++, std::move(fold).value()});
    }
  }
  if (sums.empty()) return std::optional<TwoLevels>();

  auto fold = reduce::TreeFold::compile(leaves, ranks);
  if (!fold.ok()) return fold.status();
  TwoLevels levels(std::move(fold).value());
  levels.block_ = ~std::size_t{0};
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (made[g] > 0)
      levels.block_ = std::min(levels.block_, buffer_bytes / reduce::kCacheLine / made[g] *
                                                  groups[g].size() * reduce::kCacheLine);
  }
  if (levels.block_ == 0) return std::optional<TwoLevels>();
  levels.group_ = group_of.at(nodes[rank]);
  const auto group_rank_of = [&](std::size_t r) {
    const auto& group = groups[group_of.at(nodes[r])];
    return static_cast<std::size_t>(std::ranges::find(group, r) - group.begin());
  };
  levels.group_rank_ = group_rank_of(rank);
  // If all NUMA nodes have equally many ranks, a rank's slice at the second level is part of its
  // slice at the first, and so still in that core's cache.
  for (std::size_t r = 0; r < ranks; ++r) {
    const auto before = std::pair(group_rank_of(r), group_of.at(nodes[r]));
    if (before < std::pair(levels.group_rank_, levels.group_)) levels.global_slice_ += 1;
  }
  levels.groups_ = std::move(groups);
  levels.sums_ = std::move(sums);
  levels.terms_ = std::move(terms);
  return std::optional<TwoLevels>(std::move(levels));
}

std::size_t TwoLevels::stride(std::size_t bytes, std::size_t group) const {
  return largest_slice(bytes, groups_[group].size());
}

void TwoLevels::reduce_intra(std::span<const std::byte* const> inputs, reduce::ByteRange block,
                             std::byte* sums, Dtype dtype, Op op) const {
  const auto count = static_cast<int>(groups_[group_].size());
  const reduce::ByteRange mine =
      reduce::slice_of(block.size(), static_cast<int>(group_rank_), count);
  std::vector<const std::byte*> sources;
  for (const Sum& sum : sums_) {
    if (sum.group != group_) continue;
    sources.clear();
    for (std::size_t i = 0; i < sum.count; ++i)
      sources.push_back(inputs[sum.first + i] + block.begin);
    sum.fold.run(sources, mine, sums + sum.index * stride(block.size(), group_), dtype,
                 op == Op::kAvg ? Op::kSum : op, reduce::Stores::kPlain);
  }
}

void TwoLevels::reduce_inter(std::span<const std::byte* const> inputs, reduce::ByteRange block,
                             const SumsOf& sums_of, std::byte* out, Dtype dtype, Op op,
                             reduce::Stores stores) const {
  std::size_t ranks = 0;
  for (const auto& group : groups_) ranks += group.size();
  const reduce::ByteRange mine =
      reduce::slice_of(block.size(), static_cast<int>(global_slice_), static_cast<int>(ranks));
  std::vector<const std::byte*> sources(terms_.size());
  for (std::size_t at = mine.begin, end = 0; at < mine.end; at = end) {
    end = mine.end;
    for (std::size_t t = 0; t < terms_.size(); ++t) {
      if (!terms_[t].is_sum) {
        sources[t] = inputs[terms_[t].index] + block.begin;
        continue;
      }
      const Sum& sum = sums_[terms_[t].index];
      const auto& owners = groups_[sum.group];
      const std::size_t owner = slice_at(block.size(), at, owners.size());
      const reduce::ByteRange theirs =
          reduce::slice_of(block.size(), static_cast<int>(owner), static_cast<int>(owners.size()));
      sources[t] =
          sums_of(owners[owner]) + sum.index * stride(block.size(), sum.group) - theirs.begin;
      end = std::min(end, theirs.end);
    }
    fold_.run(sources, {at, end}, out + block.begin + at, dtype, op, stores);
  }
}

}  // namespace regroup::collective::shm
