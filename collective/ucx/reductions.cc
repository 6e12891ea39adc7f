// Allreduce and reduce: what the ranks of a host do before and after the hosts reduce. Large operations go in
// chunks, with a slice of each chunk through each rank; small ones go whole through one rank of each host.
#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <optional>

#include "collective/reduce/half.h"
#include "collective/ucx/communicator.h"
#include "shmem/arena.h"

namespace regroup::collective {
namespace {

constexpr std::size_t kChunkBytes = 256 << 10;         // smallest chunk
constexpr std::size_t kMaxChunkPerMember = 512 << 10;  // halves of it fit UCX's own messages
constexpr std::size_t kMostBytes = 2 << 20;            // largest chunk; each rank buffers several
constexpr std::size_t kParts = 4;                      // chunks that make pipelining worthwhile
constexpr std::size_t kChunkDepth = 2;                 // chunks between hosts at a time
constexpr std::size_t kSliceBytes = 32 << 10;          // smallest slice worth a message and a local barrier

}  // namespace

// Elements begin .. begin + count - 1 of a reduction, and its buffers while it is in flight.
struct UcxCommunicator::Chunk {
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

// Converts leaves to the work type.
PartialSums UcxCommunicator::widened(PartialSums leaves, std::size_t count, Arithmetic arithmetic,
                                     std::vector<Scratch::Buffer>* keep) {
  if (arithmetic.work == arithmetic.stored) return leaves;
  for (const std::byte*& leaf : leaves) {
    keep->push_back(scratch_.get(count * arithmetic.work_size()));
    widen(keep->back().data(), leaf, count, arithmetic.stored);
    leaf = keep->back().data();
  }
  return leaves;
}

// The ranks of this host make up one node of the tree, so the local communicator computes the same bits.
bool UcxCommunicator::is_summed_by_local(Arithmetic arithmetic) const {
  return local_size() > 1 && arithmetic.work == arithmetic.stored && plans_.local.outputs.size() == 1;
}

// Gathers our slice of the inputs of all ranks of this host, folded as far as the tree allows.
Task UcxCommunicator::gather_slices(Exchange& x, Chunk& c) {
  const std::size_t size = c.arithmetic.size();
  const std::size_t width = local_size() == 1 ? c.count : slice_width(c.count, local_size());
  PartialSums leaves{c.in()};
  const bool gets_result = c.to < 0 || c.to == static_cast<int>(layout_.host);
  const std::size_t whole = width * local_size();
  const bool in_place = gets_result && whole == c.count && (local_size() == 1 || c.to < 0);
  c.mine = in_place ? c.out() + layout_.local_rank * width * size : c.room(scratch_, width * size);
  if (local_size() > 1) {
    const std::byte* in = c.in();
    if (whole != c.count) {
      std::byte* padded = c.room(scratch_, whole * size);
      std::memcpy(padded, in, c.count * size);
      std::memset(padded + c.count * size, 0, (whole - c.count) * size);
      in = padded;
    }
    if (is_summed_by_local(c.arithmetic)) {
      std::byte* const sum = c.room(scratch_, width * size);
      co_await local(Operation::reduce_scatter({in, whole * size}, {sum, width * size}, c.o.dtype,
                                               c.arithmetic.partial));
      c.held = {sum};
      co_return;
    }
    std::byte* all = c.room(scratch_, whole * size);
    co_await local(Operation::alltoall({in, whole * size}, {all, whole * size}));
    leaves.clear();
    for (std::size_t local_rank = 0; local_rank < local_size(); ++local_rank)
      leaves.push_back(all + local_rank * width * size);
  }
  const std::size_t mine =
      local_size() == 1 ? c.count : slice_of_local_rank(c.count, local_size(), layout_.local_rank).size();
  leaves = widened(std::move(leaves), mine, c.arithmetic, &c.keep);
  c.held = x.merged(plans_.local, leaves, mine, c.arithmetic, &c.keep);
}

Task UcxCommunicator::between_hosts(Exchange& x, Chunk& c) {
  std::vector<Task> tasks;
  const std::size_t first = slice_of_local_rank(c.count, local_size(), layout_.local_rank).begin;
  for (const Segment& segment : segments_of(layout_, c.count)) {
    const std::size_t at = segment.range.begin - first;
    PartialSums held = c.held;
    for (const std::byte*& one : held) one += at * c.arithmetic.work_size();
    tasks.push_back(x.reduce(segment, plans_.between, std::move(held), c.arithmetic,
                             c.mine + at * c.arithmetic.size(), c.index, c.to));
  }
  for (Task& task : tasks) co_await task;
}

// Gives the results of all slices to the ranks of this host that want them.
Task UcxCommunicator::share_slices(Chunk& c) {
  if (local_size() == 1 || (c.to >= 0 && c.to != static_cast<int>(layout_.host))) co_return;
  const std::size_t bytes = c.count * c.arithmetic.size();
  const std::size_t width = slice_width(c.count, local_size()) * c.arithmetic.size();
  const bool fits = width * local_size() == bytes;
  const bool wants = c.o.kind != Kind::kReduce || rank_ == c.o.root;
  const Output all{fits && wants ? c.out() : c.room(scratch_, width * local_size()), width * local_size()};
  if (c.o.kind == Kind::kReduce) {
    const int root = local_rank_of(c.o.root);
    co_await local(Operation::gather({c.mine, width}, wants ? all : Output(), root));
  } else {
    co_await local(Operation::allgather({c.mine, width}, all));
  }
  if (!fits && wants) std::memcpy(c.out(), all.data(), bytes);
}

// All ranks of a host start their local operations in the same order, whatever the network does.
Task UcxCommunicator::reduce(Exchange& x, Operation o, int to) {
  const Arithmetic arithmetic = Arithmetic::of(o.dtype, o.op);
  const std::size_t elements = o.in.size() / arithmetic.size();
  const std::size_t step = chunk_bytes(elements * arithmetic.work_size()) / arithmetic.work_size();
  const std::size_t chunks = (elements + step - 1) / step;
  std::deque<Chunk> flight;
  for (std::size_t i = 0; i < chunks + kChunkDepth; ++i) {
    if (i < chunks) {
      Chunk& c = flight.emplace_back(Chunk{o, arithmetic, to, static_cast<std::uint32_t>(i), i * step,
                                           std::min(step, elements - i * step)});
      co_await gather_slices(x, c);
      c.task.emplace(between_hosts(x, c));
    }
    if (i < kChunkDepth || flight.empty()) continue;
    Task& first = *flight.front().task;
    co_await first;
    co_await share_slices(flight.front());
    flight.pop_front();
  }
}

std::size_t UcxCommunicator::max_local_size() const {
  std::size_t limit = 0;
  for (const auto& ranks : layout_.hosts) limit = std::max(limit, ranks.size());
  return limit;
}

// Each message and each local barrier has a fixed cost. Ranks that share a host can work on the next chunk
// while one is on the network, a single rank cannot.
std::size_t UcxCommunicator::chunk_bytes(std::size_t bytes) const {
  const std::size_t limit = std::min(max_local_size() * kMaxChunkPerMember, kMostBytes);
  return max_local_size() == 1 ? limit : std::clamp(std::bit_floor(bytes / kParts), kChunkBytes, limit);
}

bool UcxCommunicator::uses_leader(std::size_t bytes) const {
  return bytes <= std::min(kChunkBytes, max_local_size() * kSliceBytes);
}

int UcxCommunicator::leader_of(std::size_t host, const Operation& o) const {
  const bool has_root = o.kind == Kind::kReduce && layout_.host_of(o.root) == host;
  return has_root ? o.root : layout_.hosts[host][0];
}

// Gathers the inputs of this host, folded as far as the tree allows, at the leader.
Task UcxCommunicator::sum_at_leader(Exchange& x, Chunk& c, int leader) {
  const std::size_t bytes = c.o.in.size();
  const bool is_leader = rank_ == leader;
  if (is_summed_by_local(c.arithmetic)) {
    const Output sum = is_leader ? Output(c.room(scratch_, bytes), bytes) : Output();
    co_await local(Operation::reduce(c.o.in, sum, local_rank_of(leader), c.o.dtype, c.arithmetic.partial));
    if (is_leader) c.held = {sum.data()};
    co_return;
  }
  PartialSums leaves{c.in()};
  if (local_size() > 1) {
    const Output all =
        is_leader ? Output(c.room(scratch_, local_size() * bytes), local_size() * bytes) : Output();
    co_await local(Operation::gather(c.o.in, all, local_rank_of(leader)));
    if (!is_leader) co_return;
    leaves.clear();
    for (std::size_t local_rank = 0; local_rank < local_size(); ++local_rank)
      leaves.push_back(all.data() + local_rank * bytes);
  }
  leaves = widened(std::move(leaves), c.count, c.arithmetic, &c.keep);
  c.held = x.merged(plans_.local, leaves, c.count, c.arithmetic, &c.keep);
}

Task UcxCommunicator::reduce_via_leader(Exchange& x, Operation o, int to) {
  const Arithmetic arithmetic = Arithmetic::of(o.dtype, o.op);
  Chunk c{o, arithmetic, to, 0, 0, o.in.size() / arithmetic.size()};
  const int leader = leader_of(layout_.host, o);
  co_await sum_at_leader(x, c, leader);
  if (rank_ == leader) {
    const bool gets_result = to < 0 || to == static_cast<int>(layout_.host);
    c.mine = gets_result ? c.out() : c.room(scratch_, o.in.size());
    Segment whole{{0, c.count}, 0, {}};
    for (std::size_t host = 0; host < layout_.hosts.size(); ++host)
      whole.owners.push_back(leader_of(host, o));
    co_await x.reduce(std::move(whole), plans_.between, std::move(c.held), arithmetic, c.mine, 0, to);
  }
  if (to < 0 && local_size() > 1) co_await local(Operation::broadcast(o.out, local_rank_of(leader)));
}

}  // namespace regroup::collective
