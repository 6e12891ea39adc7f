// reduce_scatter, where each block has a destination of its own, and sum_partials, where all ranks of a host
// can read all partial sums of the host.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "collective/net/allreduce_progress.h"
#include "collective/ucx/communicator.h"
#include "shmem/arena.h"

namespace regroup::collective {

using base::Status;

namespace {

constexpr std::size_t kScatterChunkBytes = 1 << 20;
constexpr std::size_t kSumPieceBytes = 512 << 10;  // of the result
constexpr std::size_t kSumPieceDepth = 3;          // pieces between hosts at a time

}  // namespace

// Elements begin .. begin + count - 1 of every block of a reduce_scatter.
struct UcxCommunicator::ScatterChunk {
  const Operation& o;
  const Arithmetic arithmetic;
  const std::uint32_t index;
  const std::size_t begin;
  const std::size_t count;

  std::vector<Scratch::Buffer> keep{};
  [[nodiscard]] std::byte* room(Scratch& scratch, std::size_t bytes) {
    keep.push_back(scratch.get(bytes));
    return keep.back().data();
  }
};

// Each rank folds, for all ranks of its host, its own block and those of the ranks for which it is the proxy.
Task UcxCommunicator::reduce_scatter_chunk(Exchange& x, ScatterChunk& p) {
  const std::size_t n = p.o.out.size();
  const std::size_t bytes = p.count * p.arithmetic.size();
  const auto block = [&](int r) {
    return p.o.in.data() + static_cast<std::size_t>(r) * n + p.begin * p.arithmetic.size();
  };
  const ProxiedRanks proxied = ranks_proxied_by(layout_.local_rank);
  const std::size_t blocks = proxied.maximum + 1;
  const std::size_t bundle = blocks * bytes;
  std::byte* const out = p.room(scratch_, local_size() * bundle);
  std::byte* const in = p.room(scratch_, local_size() * bundle);
  for (std::size_t local_rank = 0; local_rank < local_size(); ++local_rank) {
    std::byte* to = out + local_rank * bundle;
    std::memcpy(to, block(layout_.here()[local_rank]), bytes);
    for (const int r : ranks_proxied_by(local_rank).mine) std::memcpy(to += bytes, block(r), bytes);
  }
  co_await local(Operation::alltoall({out, local_size() * bundle}, {in, local_size() * bundle}));
  const auto folded = [&](std::size_t k) {
    PartialSums leaves;
    for (std::size_t local_rank = 0; local_rank < local_size(); ++local_rank)
      leaves.push_back(in + local_rank * bundle + k * bytes);
    leaves = widened(std::move(leaves), p.count, p.arithmetic, &p.keep);
    return x.merged(plans_.local, leaves, p.count, p.arithmetic, &p.keep);
  };
  const std::size_t work = p.count * p.arithmetic.work_size();
  std::vector<Task> tasks;
  for (std::size_t k = 0; k < proxied.mine.size(); ++k) {
    const PartialSums held = folded(k + 1);
    for (std::uint32_t node = 0; node < held.size(); ++node) {
      tasks.push_back(x.send(proxied.mine[k], {MessageTag::kBlock, p.index, 0, node}, {held[node], work}));
    }
  }
  PartialSums all;
  for (std::size_t host = 0; host < layout_.hosts.size(); ++host) {
    const PartialSums mine = host == layout_.host ? folded(0) : PartialSums();
    all.insert(all.end(), mine.begin(), mine.end());
    for (std::uint32_t node = 0; host != layout_.host && node < plans_.by_host[host].size(); ++node) {
      all.push_back(p.room(scratch_, work));
      const int from = layout_.hosts[host][proxy_for(host, rank_)];
      tasks.push_back(x.receive(from, {MessageTag::kBlock, p.index, 0, node}, {p.keep.back().data(), work}));
    }
  }
  for (Task& task : tasks) co_await task;
  x.write_result(plans_.whole, all, p.count, p.arithmetic, p.o.out.data() + p.begin * p.arithmetic.size());
}

// Works in place: the output is a block of the input that is not read after its chunk is packed.
Task UcxCommunicator::reduce_scatter(Exchange& x, Operation o) {
  const Arithmetic arithmetic = Arithmetic::of(o.dtype, o.op);
  const std::size_t elements = o.out.size() / arithmetic.size();
  const std::size_t step =
      std::max<std::size_t>(1024, kScatterChunkBytes / arithmetic.size() / ranks_.size());
  for (std::size_t at = 0, index = 0; at < elements; at += step, ++index) {
    ScatterChunk chunk{o, arithmetic, static_cast<std::uint32_t>(index), at, std::min(step, elements - at)};
    co_await reduce_scatter_chunk(x, chunk);
  }
}

struct UcxCommunicator::Sum {
  const std::uint32_t leaves;
  const Output result;
  const Arithmetic arithmetic;
  const CollectiveSignature signature;
  const SumBlocks& blocks;
  const BlockGrid grid;
  Merge here;  // of the caller's partial sums
  PartialSums inputs;
  AllreduceProgress progress = {};  // this host's
  Blocks common = {};               // complete on all hosts
};

Status UcxCommunicator::sum_partials(std::span<const Partial> partials, std::uint32_t leaves, Output result,
                                     Dtype dtype, base::TimePoint deadline, const SumBlocks& blocks) {
  if (layout_.hosts.size() == 1)
    return local_->sum_partials(partials, leaves, result, dtype, deadline, blocks);
  const Operation o{Kind::kSumPartials, dtype, Op::kSum, static_cast<int>(leaves), result, result};
  Nodes nodes;
  PartialSums inputs;
  for (const Partial& partial : partials) {
    if (partial.data.size() != result.size()) {
      return base::invalid_argument(fmt::format("sum_partials: partial [{},{}) has {} bytes, the result {}",
                                                partial.leaves.begin, partial.leaves.end, partial.data.size(),
                                                result.size()));
    }
    if (size_of(dtype) == 2 && dtype != Dtype::kInt16 && partial.leaves.size() > 1) {
      return base::invalid_argument(
          fmt::format("sum_partials: partial [{},{}) of {} was rounded; keep partial sums as float32",
                      partial.leaves.begin, partial.leaves.end, name_of(dtype)));
    }
    nodes.push_back(partial.leaves);
    inputs.push_back(partial.data.data());
  }
  if (result.size() % size_of(dtype) != 0) {
    return base::invalid_argument(fmt::format("sum_partials: {} bytes are not whole elements of {} bytes",
                                              result.size(), size_of(dtype)));
  }
  auto here = plan_merge(std::span(&nodes, 1), leaves);
  if (!here.ok()) return here.status();
  Sum sum_at_hand{leaves,
                  result,
                  Arithmetic::of(dtype, Op::kSum),
                  signature_of(o, size()),
                  blocks,
                  BlockGrid(result.size() / size_of(dtype), blocks.marks.size()),
                  std::move(*here),
                  std::move(inputs)};
  OperationDescriptor operation{
      .communicator = id_, .ranks = ranks_, .number = ++number_, .signature = sum_at_hand.signature};
  operation.begin = [this, &sum_at_hand, number = operation.number] { return sum(sum_at_hand, number); };
  auto ticket = engine_->start(std::move(operation), deadline);
  return ticket.ok() ? engine_->wait(*ticket) : ticket.status();
}

// Exchanges the nodes and the progress of each host. One rank of each host suffices, as all of a host know
// them.
Task UcxCommunicator::exchange_progress(Exchange& x, Sum& s, std::vector<Nodes>* by_host) {
  const auto count = static_cast<std::uint32_t>(s.blocks.marks.size());
  const auto mine = encode(s.progress);
  const std::size_t limit = max_encoded_bytes(s.leaves, count);
  std::vector<Task> tasks;
  std::vector<std::vector<std::byte>> progress(layout_.hosts.size());
  for (std::size_t host = 0; host < layout_.hosts.size(); ++host) {
    if (host == layout_.host) continue;
    for (const int r : layout_.hosts[host]) {
      if (proxy_for(layout_.host, r) == layout_.local_rank) {
        tasks.push_back(x.send(r, {MessageTag::kNodes}, std::as_bytes(std::span(mine))));
      }
    }
    tasks.push_back(
        x.receive(layout_.hosts[host][proxy_for(host, rank_)], {MessageTag::kNodes}, &progress[host], limit));
  }
  for (Task& task : tasks) co_await task;
  by_host->assign(layout_.hosts.size(), s.here.nodes);
  s.common = s.progress.completed;
  for (std::size_t host = 0; host < progress.size(); ++host) {
    if (host == layout_.host) continue;
    AllreduceProgress other = decode_progress(progress[host], count);
    s.common = common_blocks({{}, std::move(s.common), s.progress.generation}, other);
    (*by_host)[host] = std::move(other.nodes);
  }
}

Task UcxCommunicator::sum_piece(Exchange& x, Sum& s, const Halving& plan, Segment segment,
                                std::uint32_t index) {
  std::vector<Scratch::Buffer> keep;
  const std::size_t count = segment.range.size();
  PartialSums inputs = s.inputs;
  for (const std::byte*& input : inputs) input += segment.range.begin * s.arithmetic.size();
  inputs = widened(std::move(inputs), count, s.arithmetic, &keep);
  PartialSums held = x.merged(s.here, inputs, count, s.arithmetic, &keep);
  std::byte* const out = s.result.data() + segment.range.begin * s.arithmetic.size();
  co_await x.reduce(segment, plan, std::move(held), s.arithmetic, out, index);
}

// Waits for the oldest piece in flight, and marks the blocks that are complete after it.
Task UcxCommunicator::finish_oldest(Sum& s, InFlight* flight) {
  auto& [piece, completed] = flight->front();
  co_await piece;
  mark(s.blocks, completed);
  flight->pop_front();
}

// Skips the blocks that are complete on all hosts.
Task UcxCommunicator::sum_segment(Exchange& x, Sum& s, const Halving& plan, Segment segment,
                                  InFlight* flight) {
  const std::vector<Range> missing = s.grid.missing(segment.range, s.common);
  const std::size_t step = kSumPieceBytes / s.arithmetic.size();
  std::uint32_t index = 0;  // counts pieces within the segment, the same on all hosts
  for (const Range& range : missing) {
    std::size_t unset = range.begin;
    for (segment.range = range; segment.range.begin < range.end; segment.range.begin = segment.range.end) {
      segment.range.end = std::min(range.end, segment.range.begin + step);
      const proto::Interval whole = s.grid.whole_blocks({unset, segment.range.end});
      if (whole.size() > 0) unset = s.grid.elements_of(whole).end;
      flight->emplace_back(sum_piece(x, s, plan, segment, index++), whole);
      if (flight->size() >= kSumPieceDepth) co_await finish_oldest(s, flight);
    }
  }
}

Task UcxCommunicator::sum(Sum& s, std::uint64_t number) {
  PeerMesh& mesh = engine_->mesh();
  signature_ = s.signature;
  Exchange x(*engine_, scratch_, layout_, ranks_, id_, number, signature_);
  co_await Until(*engine_, [&] { return shmem::all_left_before(mesh.arena(), mesh.world().generation); });
  // Members of an earlier generation have left, so they mark no more blocks; and no member of this generation
  // marks one before all ranks of this host have read the marks, which compare_signatures() waits for.
  s.progress.nodes = s.here.nodes;
  s.progress.completed = marked(s.blocks);
  if (!s.progress.completed.empty())
    s.progress.generation = s.blocks.generation->load(std::memory_order_acquire);
  if (local_size() > 1) co_await compare_signatures();
  std::vector<Nodes> by_host;
  co_await exchange_progress(x, s, &by_host);
  const auto plan = plan_halving(layout_.host, by_host, s.leaves);
  if (!plan.ok()) {
    engine_->fail_all(plan.status());
    co_await Until(*engine_, [] { return false; });
  }
  begin_sum(s.blocks, mesh.world().generation, s.common);
  InFlight flight;
  for (Segment& segment : segments_of(layout_, s.result.size() / s.arithmetic.size()))
    co_await sum_segment(x, s, *plan, std::move(segment), &flight);
  while (!flight.empty()) co_await finish_oldest(s, &flight);
  if (local_size() > 1)
    co_await local(Operation::barrier());  // after it every rank can read the whole result
}

}  // namespace regroup::collective
