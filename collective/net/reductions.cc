// Allreduce, reduce and reduce_scatter: the local operations before and after the reduction between
// hosts. A large operation is split into chunks, and each rank sends a slice of each chunk; a small
// one is sent by one rank of each host. In a reduce_scatter each block has its own destination.
#include "collective/net/reductions.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <optional>

namespace regroup::collective::net {
namespace {

constexpr std::size_t kChunkBytes = 256 << 10;         // smallest chunk
constexpr std::size_t kMaxChunkPerMember = 512 << 10;  // half of it fits in one UCX message
constexpr std::size_t kMostBytes = 2 << 20;            // largest chunk; each rank buffers several
constexpr std::size_t kParts = 4;              // least number of chunks for which pipelining pays
constexpr std::size_t kChunkDepth = 2;         // number of chunks in flight between hosts
constexpr std::size_t kSliceBytes = 32 << 10;  // smallest slice worth a message and a local barrier
constexpr std::size_t kScatterChunkBytes = 1 << 20;  // chunk of a reduce_scatter

// Each message and each local barrier has a fixed cost. Ranks that share a host can work on the
// next chunk while one is on the network, a single rank cannot.
std::size_t chunk_bytes(const Layout& layout, std::size_t bytes) {
  const std::size_t limit = std::min(layout.max_local_size() * kMaxChunkPerMember, kMostBytes);
  return layout.max_local_size() == 1
             ? limit
             : std::clamp(std::bit_floor(bytes / kParts), kChunkBytes, limit);
}

bool uses_leader(const Layout& layout, std::size_t bytes) {
  return bytes <= std::min(kChunkBytes, layout.max_local_size() * kSliceBytes);
}

int leader_of(const Layout& layout, std::size_t host, const Operation& o) {
  const bool has_root = o.kind == Kind::kReduce && layout.host_of(o.root) == host;
  return has_root ? o.root : layout.hosts[host][0];
}

// Elements begin .. begin + count - 1 of a reduction, and its buffers while it is in flight.
struct Chunk {
  const Operation& o;
  const Arithmetic arithmetic;
  const int to;
  const std::uint32_t index;
  const std::size_t begin;
  const std::size_t count;

  std::vector<Scratch::Buffer> keep{};
  PartialSums held{};         // partial sums of our slice
  std::byte* mine = nullptr;  // the sum of our slice
  std::optional<Task> task{};

  [[nodiscard]] const std::byte* in() const { return o.in.data() + begin * arithmetic.size(); }
  [[nodiscard]] std::byte* out() const { return o.out.data() + begin * arithmetic.size(); }
  [[nodiscard]] std::byte* room(Scratch& scratch, std::size_t bytes) {
    keep.push_back(scratch.get(bytes));
    return keep.back().data();
  }
};

// True if the ranks of this host form one node of the tree, so that the local communicator computes
// the same bits.
bool is_summed_by_local(const Exchange& x, Arithmetic arithmetic) {
  const Layout& layout = x.layout();
  return layout.local_size() > 1 && arithmetic.work == arithmetic.stored &&
         x.rank_sums().local.outputs.size() == 1;
}

// Gathers our slice of the inputs of all ranks of this host, folded as far as the tree allows.
Task gather_slices(Exchange& x, Chunk& c) {
  const Layout& layout = x.layout();
  const std::size_t size = c.arithmetic.size();
  const std::size_t width =
      layout.local_size() == 1 ? c.count : slice_width(c.count, layout.local_size());
  PartialSums leaves{c.in()};
  const bool gets_result = c.to < 0 || c.to == static_cast<int>(layout.host);
  const std::size_t whole = width * layout.local_size();
  const bool in_place = gets_result && whole == c.count && (layout.local_size() == 1 || c.to < 0);
  c.mine =
      in_place ? c.out() + layout.local_rank * width * size : c.room(x.scratch(), width * size);
  if (layout.local_size() > 1) {
    const std::byte* in = c.in();
    if (whole != c.count) {
      std::byte* padded = c.room(x.scratch(), whole * size);
      std::memcpy(padded, in, c.count * size);
      std::memset(padded + c.count * size, 0, (whole - c.count) * size);
      in = padded;
    }
    if (is_summed_by_local(x, c.arithmetic)) {
      std::byte* const sum = c.room(x.scratch(), width * size);
      co_await x.run_locally(Operation::reduce_scatter({in, whole * size}, {sum, width * size},
                                                       c.o.dtype, c.arithmetic.partial));
      c.held = {sum};
      co_return;
    }
    std::byte* all = c.room(x.scratch(), whole * size);
    co_await x.run_locally(Operation::alltoall({in, whole * size}, {all, whole * size}));
    leaves.clear();
    for (std::size_t local_rank = 0; local_rank < layout.local_size(); ++local_rank)
      leaves.push_back(all + local_rank * width * size);
  }
  const std::size_t mine =
      layout.local_size() == 1
          ? c.count
          : slice_of_local_rank(c.count, layout.local_size(), layout.local_rank).size();
  leaves = x.widened(std::move(leaves), mine, c.arithmetic, &c.keep);
  c.held = x.merged(x.rank_sums().local, leaves, mine, c.arithmetic, &c.keep);
}

Task between_hosts(Exchange& x, Chunk& c) {
  const Layout& layout = x.layout();
  std::vector<Task> tasks;
  const std::size_t first =
      slice_of_local_rank(c.count, layout.local_size(), layout.local_rank).begin;
  for (const Segment& segment : segments_of(layout, c.count)) {
    const std::size_t at = segment.range.begin - first;
    PartialSums held = c.held;
    for (const std::byte*& one : held) one += at * c.arithmetic.work_size();
    tasks.push_back(x.reduce(segment, x.rank_sums().between, std::move(held), c.arithmetic,
                             c.mine + at * c.arithmetic.size(), c.index, c.to));
  }
  for (Task& task : tasks) co_await task;
}

// Distributes the results of all slices to the ranks of this host that receive the result.
Task share_slices(Exchange& x, Chunk& c) {
  const Layout& layout = x.layout();
  if (layout.local_size() == 1 || (c.to >= 0 && c.to != static_cast<int>(layout.host))) co_return;
  const std::size_t bytes = c.count * c.arithmetic.size();
  const std::size_t width = slice_width(c.count, layout.local_size()) * c.arithmetic.size();
  const bool fits = width * layout.local_size() == bytes;
  const bool wants = c.o.kind != Kind::kReduce || layout.rank == c.o.root;
  const Output all{fits && wants ? c.out() : c.room(x.scratch(), width * layout.local_size()),
                   width * layout.local_size()};
  if (c.o.kind == Kind::kReduce) {
    const int root = layout.local_rank_of(c.o.root);
    co_await x.run_locally(Operation::gather({c.mine, width}, wants ? all : Output(), root));
  } else {
    co_await x.run_locally(Operation::allgather({c.mine, width}, all));
  }
  if (!fits && wants) std::memcpy(c.out(), all.data(), bytes);
}

// All ranks of a host start their local operations in the same order, whatever the network does.
Task reduce_by_slices(Exchange& x, Operation o, int to) {
  const Layout& layout = x.layout();
  const Arithmetic arithmetic = Arithmetic::of(o.dtype, o.op);
  const std::size_t elements = o.in.size() / arithmetic.size();
  const std::size_t step =
      chunk_bytes(layout, elements * arithmetic.work_size()) / arithmetic.work_size();
  const std::size_t chunks = (elements + step - 1) / step;
  std::deque<Chunk> flight;
  for (std::size_t i = 0; i < chunks + kChunkDepth; ++i) {
    if (i < chunks) {
      Chunk& c = flight.emplace_back(Chunk{o, arithmetic, to, static_cast<std::uint32_t>(i),
                                           i * step, std::min(step, elements - i * step)});
      co_await gather_slices(x, c);
      c.task.emplace(between_hosts(x, c));
    }
    if (i < kChunkDepth || flight.empty()) continue;
    Task& first = *flight.front().task;
    co_await first;
    co_await share_slices(x, flight.front());
    flight.pop_front();
  }
}

// Gathers the inputs of this host, folded as far as the tree allows, at the leader.
Task sum_at_leader(Exchange& x, Chunk& c, int leader) {
  const Layout& layout = x.layout();
  const std::size_t bytes = c.o.in.size();
  const bool is_leader = layout.rank == leader;
  if (is_summed_by_local(x, c.arithmetic)) {
    const Output sum = is_leader ? Output(c.room(x.scratch(), bytes), bytes) : Output();
    co_await x.run_locally(Operation::reduce(c.o.in, sum, layout.local_rank_of(leader), c.o.dtype,
                                             c.arithmetic.partial));
    if (is_leader) c.held = {sum.data()};
    co_return;
  }
  PartialSums leaves{c.in()};
  if (layout.local_size() > 1) {
    const Output all = is_leader ? Output(c.room(x.scratch(), layout.local_size() * bytes),
                                          layout.local_size() * bytes)
                                 : Output();
    co_await x.run_locally(Operation::gather(c.o.in, all, layout.local_rank_of(leader)));
    if (!is_leader) co_return;
    leaves.clear();
    for (std::size_t local_rank = 0; local_rank < layout.local_size(); ++local_rank)
      leaves.push_back(all.data() + local_rank * bytes);
  }
  leaves = x.widened(std::move(leaves), c.count, c.arithmetic, &c.keep);
  c.held = x.merged(x.rank_sums().local, leaves, c.count, c.arithmetic, &c.keep);
}

Task reduce_via_leader(Exchange& x, Operation o, int to) {
  const Layout& layout = x.layout();
  const Arithmetic arithmetic = Arithmetic::of(o.dtype, o.op);
  Chunk c{o, arithmetic, to, 0, 0, o.in.size() / arithmetic.size()};
  const int leader = leader_of(layout, layout.host, o);
  co_await sum_at_leader(x, c, leader);
  if (layout.rank == leader) {
    const bool gets_result = to < 0 || to == static_cast<int>(layout.host);
    c.mine = gets_result ? c.out() : c.room(x.scratch(), o.in.size());
    Segment whole{{0, c.count}, 0, {}};
    for (std::size_t host = 0; host < layout.hosts.size(); ++host)
      whole.owners.push_back(leader_of(layout, host, o));
    co_await x.reduce(std::move(whole), x.rank_sums().between, std::move(c.held), arithmetic,
                      c.mine, 0, to);
  }
  if (to < 0 && layout.local_size() > 1)
    co_await x.run_locally(Operation::broadcast(o.out, layout.local_rank_of(leader)));
}

// Elements begin .. begin + count - 1 of every block of a reduce_scatter.
struct ScatterChunk {
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

// Each rank folds, for all ranks of its host, its own block and those of the ranks for which it is
// the proxy.
Task reduce_scatter_chunk(Exchange& x, ScatterChunk& p) {
  const Layout& layout = x.layout();
  const std::size_t n = p.o.out.size();
  const std::size_t bytes = p.count * p.arithmetic.size();
  const auto block = [&](int r) {
    return p.o.in.data() + static_cast<std::size_t>(r) * n + p.begin * p.arithmetic.size();
  };
  const Layout::ProxiedRanks proxied = layout.ranks_proxied_by(layout.local_rank);
  const std::size_t blocks = proxied.maximum + 1;
  const std::size_t bundle = blocks * bytes;
  std::byte* const out = p.room(x.scratch(), layout.local_size() * bundle);
  std::byte* const in = p.room(x.scratch(), layout.local_size() * bundle);
  for (std::size_t local_rank = 0; local_rank < layout.local_size(); ++local_rank) {
    std::byte* to = out + local_rank * bundle;
    std::memcpy(to, block(layout.here()[local_rank]), bytes);
    for (const int r : layout.ranks_proxied_by(local_rank).mine)
      std::memcpy(to += bytes, block(r), bytes);
  }
  co_await x.run_locally(
      Operation::alltoall({out, layout.local_size() * bundle}, {in, layout.local_size() * bundle}));
  const auto folded = [&](std::size_t k) {
    PartialSums leaves;
    for (std::size_t local_rank = 0; local_rank < layout.local_size(); ++local_rank)
      leaves.push_back(in + local_rank * bundle + k * bytes);
    leaves = x.widened(std::move(leaves), p.count, p.arithmetic, &p.keep);
    return x.merged(x.rank_sums().local, leaves, p.count, p.arithmetic, &p.keep);
  };
  const std::size_t work = p.count * p.arithmetic.work_size();
  std::vector<Task> tasks;
  for (std::size_t k = 0; k < proxied.mine.size(); ++k) {
    const PartialSums held = folded(k + 1);
    for (std::uint32_t tree_node = 0; tree_node < held.size(); ++tree_node) {
      tasks.push_back(x.send(proxied.mine[k], {MessageTag::kBlock, p.index, 0, tree_node},
                             {held[tree_node], work}));
    }
  }
  PartialSums all;
  for (std::size_t host = 0; host < layout.hosts.size(); ++host) {
    const PartialSums mine = host == layout.host ? folded(0) : PartialSums();
    all.insert(all.end(), mine.begin(), mine.end());
    for (std::uint32_t tree_node = 0;
         host != layout.host && tree_node < x.rank_sums().by_host[host].size(); ++tree_node) {
      all.push_back(p.room(x.scratch(), work));
      const int from = layout.hosts[host][layout.proxy_for(host, layout.rank)];
      tasks.push_back(x.receive(from, {MessageTag::kBlock, p.index, 0, tree_node},
                                {p.keep.back().data(), work}));
    }
  }
  for (Task& task : tasks) co_await task;
  x.write_result(x.rank_sums().whole, all, p.count, p.arithmetic,
                 p.o.out.data() + p.begin * p.arithmetic.size());
}

}  // namespace

Task reduce(Exchange& x, const Operation& o) {
  const Layout& layout = x.layout();
  const int to = o.kind == Kind::kReduce ? static_cast<int>(layout.host_of(o.root)) : -1;
  return uses_leader(layout, o.in.size()) ? reduce_via_leader(x, o, to)
                                          : reduce_by_slices(x, o, to);
}

// Works in place: the output is a block of the input that is not read after its chunk is packed.
Task reduce_scatter(Exchange& x, Operation o) {
  const Layout& layout = x.layout();
  const Arithmetic arithmetic = Arithmetic::of(o.dtype, o.op);
  const std::size_t elements = o.out.size() / arithmetic.size();
  const std::size_t step = std::max<std::size_t>(
      1024, kScatterChunkBytes / arithmetic.size() / static_cast<std::size_t>(layout.size));
  for (std::size_t at = 0, index = 0; at < elements; at += step, ++index) {
    ScatterChunk chunk{o, arithmetic, static_cast<std::uint32_t>(index), at,
                       std::min(step, elements - at)};
    co_await reduce_scatter_chunk(x, chunk);
  }
}

}  // namespace regroup::collective::net
