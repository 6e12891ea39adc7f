// The nodes and the completed blocks that hosts send: rejected, or a plan that reads nothing but
// their inputs, and blocks of the result. The input is the number of leaves, the size of each of
// four lists in bytes, and the lists.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "collective/net/allreduce_progress.h"
#include "collective/net/merge.h"
#include "tests/fuzz/require.h"

using namespace regroup;
using namespace regroup::collective;
using regroup::fuzz::require;

namespace {

constexpr std::size_t kHosts = 4;
constexpr std::uint32_t kMostLeaves = 512, kBlocks = 50;
constexpr std::size_t kElements = 10'000;

void check(const net::Merge& merge, std::size_t inputs) {
  require(merge.outputs.size() == merge.tree_nodes.size());
  for (const net::Merge::Output& output : merge.outputs) {
    require(!output.inputs.empty() && (output.fold || output.inputs.size() == 1));
    for (const std::uint32_t input : output.inputs) require(input < inputs);
  }
}

void check(const net::Blocks& blocks) {
  std::uint32_t from = 0;
  for (const proto::Interval& i : blocks) {
    require(from <= i.begin && i.begin < i.end && i.end <= kBlocks);
    from = i.end;
  }
}

// Each element is either completed or missing.
void check_missing(const net::Blocks& completed) {
  const net::BlockGrid grid(kElements, kBlocks);
  std::size_t elements = 0, at = 0;
  for (const net::Range& range : grid.missing({0, kElements}, completed)) {
    require(at <= range.begin && range.begin < range.end && range.end <= kElements);
    elements += range.size();
    at = range.end;
  }
  for (const proto::Interval& i : completed) elements += grid.elements_of(i).size();
  require(elements == kElements);
}

void plan(std::span<const net::TreeNodes> by_host, std::uint32_t leaves) {
  for (std::size_t host = 0; host < by_host.size(); ++host) {
    const auto plan = net::plan_halving(host, by_host, leaves);
    if (!plan.ok()) return require(!plan.status().message().empty());
    require(plan->base <= by_host.size());
    if (host >= plan->base) continue;
    std::size_t held = by_host[host].size();
    for (std::size_t k = 0; k < plan->steps.size(); ++k) {
      const net::Halving::Step& step = plan->steps[k];
      require(step.partner < plan->base);
      held += step.gets;
      if (k + 1 == plan->steps.size()) break;
      check(step.merge, held);
      held = step.merge.tree_nodes.size();
    }
    for (const std::size_t extra : plan->extra_tree_nodes) held += extra;
    check(plan->last, held);
    require(plan->last.tree_nodes.size() == 1);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  struct {
    std::uint32_t leaves;
    std::uint32_t bytes[kHosts];
  } input{};
  if (size < sizeof input) return 0;
  std::memcpy(&input, data, sizeof input);
  if (input.leaves > kMostLeaves) return 0;
  auto rest = std::as_bytes(std::span(data, size)).subspan(sizeof input);
  std::vector<net::TreeNodes> by_host;
  std::optional<net::AllreduceProgress> all;
  for (const std::uint32_t bytes : input.bytes) {
    const auto list = rest.first(std::min<std::size_t>(bytes, rest.size()));
    net::AllreduceProgress progress = net::decode_progress(list, kBlocks);
    check(progress.completed);
    by_host.push_back(progress.tree_nodes);
    if (all) progress.completed = net::common_blocks(*all, progress);
    all = std::move(progress);
    check(all->completed);
    check_missing(all->completed);
    rest = rest.subspan(list.size());
  }
  for (std::size_t hosts = 1; hosts <= kHosts; ++hosts)
    plan(std::span(by_host).first(hosts), input.leaves);
  return 0;
}
