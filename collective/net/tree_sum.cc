// All ranks of a host can read all partial sums of the host, so each rank sums its slice of them
// and exchanges that with the ranks of other hosts.
#include "collective/net/tree_sum.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "collective/net/allreduce_progress.h"

namespace regroup::collective::net {
namespace {

constexpr std::size_t kSumPieceBytes = 512 << 10;  // bytes of the result in a piece
constexpr std::size_t kSumPieceDepth = 3;          // number of pieces in flight between hosts

// The state of one sum.
struct Sum {
  const TreeSum& of;
  const BlockGrid grid;
  AllreduceProgress progress = {};  // this host's
  Blocks common = {};               // complete on all hosts
};

// Pieces in flight, each with the blocks that are complete after it.
using InFlight = std::deque<std::pair<Task, proto::Interval>>;

// Exchanges the nodes and the progress of each host. One rank of each host suffices, as all of a
// host know them.
Task exchange_progress(Exchange& x, Sum& s, std::vector<TreeNodes>* by_host) {
  const Layout& layout = x.layout();
  const auto count = static_cast<std::uint32_t>(s.of.blocks.marks.size());
  const auto mine = encode(s.progress);
  const std::size_t limit = max_encoded_bytes(s.of.leaves, count);
  std::vector<Task> tasks;
  std::vector<std::vector<std::byte>> progress(layout.hosts.size());
  for (std::size_t host = 0; host < layout.hosts.size(); ++host) {
    if (host == layout.host) continue;
    for (const int r : layout.hosts[host]) {
      if (layout.proxy_for(layout.host, r) == layout.local_rank) {
        tasks.push_back(x.send(r, {MessageTag::kNodes}, std::as_bytes(std::span(mine))));
      }
    }
    tasks.push_back(
        x.messenger().receive_up_to(limit, layout.hosts[host][layout.proxy_for(host, layout.rank)],
                                    {MessageTag::kNodes}, &progress[host]));
  }
  for (Task& task : tasks) co_await task;
  by_host->assign(layout.hosts.size(), s.of.here.tree_nodes);
  s.common = s.progress.completed;
  for (std::size_t host = 0; host < progress.size(); ++host) {
    if (host == layout.host) continue;
    AllreduceProgress other = decode_progress(progress[host], count);
    s.common = common_blocks({{}, std::move(s.common), s.progress.generation}, other);
    (*by_host)[host] = std::move(other.tree_nodes);
  }
}

Task sum_piece(Exchange& x, Sum& s, const Halving& plan, Segment segment, std::uint32_t index) {
  std::vector<Scratch::Buffer> keep;
  const std::size_t count = segment.range.size();
  PartialSums inputs = s.of.inputs;
  for (const std::byte*& input : inputs) input += segment.range.begin * s.of.arithmetic.size();
  inputs = x.widened(std::move(inputs), count, s.of.arithmetic, &keep);
  PartialSums held = x.merged(s.of.here, inputs, count, s.of.arithmetic, &keep);
  std::byte* const out = s.of.result.data() + segment.range.begin * s.of.arithmetic.size();
  co_await x.reduce(segment, plan, std::move(held), s.of.arithmetic, out, index);
}

// Waits for the oldest piece in flight, and marks the blocks that are complete after it.
Task finish_oldest(Sum& s, InFlight* flight) {
  auto& [piece, completed] = flight->front();
  co_await piece;
  mark(s.of.blocks, completed);
  flight->pop_front();
}

// Skips the blocks that are complete on all hosts.
Task sum_segment(Exchange& x, Sum& s, const Halving& plan, Segment segment, InFlight* flight) {
  const std::vector<Range> missing = s.grid.missing(segment.range, s.common);
  const std::size_t step = kSumPieceBytes / s.of.arithmetic.size();
  std::uint32_t index = 0;  // counts pieces within the segment, the same on all hosts
  for (const Range& range : missing) {
    std::size_t unset = range.begin;
    for (segment.range = range; segment.range.begin < range.end;
         segment.range.begin = segment.range.end) {
      segment.range.end = std::min(range.end, segment.range.begin + step);
      const proto::Interval whole = s.grid.whole_blocks({unset, segment.range.end});
      if (whole.size() > 0) unset = s.grid.elements_of(whole).end;
      flight->emplace_back(sum_piece(x, s, plan, segment, index++), whole);
      if (flight->size() >= kSumPieceDepth) co_await finish_oldest(s, flight);
    }
  }
}

}  // namespace

Task tree_sum(Exchange& x, const TreeSum& of) {
  const Layout& layout = x.layout();
  Sum s{of, BlockGrid(of.result.size() / of.arithmetic.size(), of.blocks.marks.size())};
  // Members of an earlier generation have left, so they mark no more blocks; and no member of this
  // generation marks one before all ranks of this host have read the marks, which the local barrier
  // waits for.
  s.progress.tree_nodes = of.here.tree_nodes;
  s.progress.completed = marked(of.blocks);
  if (!s.progress.completed.empty())
    s.progress.generation = of.blocks.generation->load(std::memory_order_acquire);
  if (layout.local_size() > 1) co_await x.run_locally(Operation::barrier());
  std::vector<TreeNodes> by_host;
  co_await exchange_progress(x, s, &by_host);
  const auto plan = plan_halving(layout.host, by_host, of.leaves);
  if (!plan.ok()) {
    Task failed = x.messenger().fail(plan.status());
    co_await failed;
  }
  begin_sum(of.blocks, of.generation, s.common);
  InFlight flight;
  for (Segment& segment : segments_of(layout, of.result.size() / of.arithmetic.size()))
    co_await sum_segment(x, s, *plan, std::move(segment), &flight);
  while (!flight.empty()) co_await finish_oldest(s, &flight);
  if (layout.local_size() > 1)
    co_await x.run_locally(Operation::barrier());  // after it every rank can read the whole result
}

}  // namespace regroup::collective::net
