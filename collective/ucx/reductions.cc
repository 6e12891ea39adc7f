// Allreduce and reduce: what a member of a host does before and after the hosts reduce with each other. Large
// ones go chunk by chunk, of each chunk a slice through each member; small ones whole through one member.
#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <optional>

#include "collective/ucx/communicator.h"
#include "collective/ucx/half.h"
#include "core/arena.h"

namespace regroup::collective {
namespace {

constexpr std::size_t kChunkBytes = 256 << 10;  // of a vector, at least
constexpr std::size_t kMostOfSeat = 512 << 10;  // of a chunk: halves of it fit UCX's own letters
constexpr std::size_t kMostBytes = 2 << 20;     // of it, which each member has room for several times
constexpr std::size_t kParts = 4;               // chunks that are worth being on their way one after another
constexpr std::size_t kChunkDepth = 2;          // chunks between hosts at a time
constexpr std::size_t kSliceBytes = 32 << 10;   // that are worth a letter and a rendezvous of their own

}  // namespace

// Elements begin..begin+count-1 of a reduction, on their way.
struct UcxCommunicator::Chunk {
  const Operation& o;
  const Arithmetic arithmetic;
  const int to;
  const std::uint32_t index;
  const std::size_t begin;
  const std::size_t count;

  std::vector<Scratch::Buffer> keep{};
  Held held{};                // partial sums of our slice
  std::byte* mine = nullptr;  // the sum of our slice
  std::optional<Task> task{};

  [[nodiscard]] const std::byte* in() const { return o.in.data() + begin * arithmetic.size(); }
  [[nodiscard]] std::byte* out() const { return o.out.data() + begin * arithmetic.size(); }
  [[nodiscard]] std::byte* room(Scratch& scratch, std::size_t bytes) {
    keep.push_back(scratch.get(bytes));
    return keep.back().data();
  }
};

// Leaves in work form.
Held UcxCommunicator::widened(Held leaves, std::size_t count, Arithmetic arithmetic,
                              std::vector<Scratch::Buffer>* keep) {
  if (arithmetic.work == arithmetic.stored) return leaves;
  for (const std::byte*& leaf : leaves) {
    keep->push_back(scratch_.get(count * arithmetic.work_size()));
    widen(keep->back().data(), leaf, count, arithmetic.stored);
    leaf = keep->back().data();
  }
  return leaves;
}

// Those of this host make up one node of the tree, with the bits of the local communicator.
bool UcxCommunicator::is_summed_by_local(Arithmetic arithmetic) const {
  return seats() > 1 && arithmetic.work == arithmetic.stored && plans_.local.outputs.size() == 1;
}

// Our slice of the inputs of all members of this host, folded as far as the tree allows.
Task UcxCommunicator::gather_slices(Exchange& x, Chunk& c) {
  const std::size_t size = c.arithmetic.size();
  const std::size_t width = seats() == 1 ? c.count : slice_width(c.count, seats());
  Held leaves{c.in()};
  const bool gets_result = c.to < 0 || c.to == static_cast<int>(layout_.host);
  const std::size_t whole = width * seats();
  const bool in_place = gets_result && whole == c.count && (seats() == 1 || c.to < 0);
  c.mine = in_place ? c.out() + layout_.seat * width * size : c.room(scratch_, width * size);
  if (seats() > 1) {
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
    for (std::size_t seat = 0; seat < seats(); ++seat) leaves.push_back(all + seat * width * size);
  }
  const std::size_t mine = seats() == 1 ? c.count : slice_of_seat(c.count, seats(), layout_.seat).size();
  leaves = widened(std::move(leaves), mine, c.arithmetic, &c.keep);
  c.held = x.merged(plans_.local, leaves, mine, c.arithmetic, &c.keep);
}

Task UcxCommunicator::between_hosts(Exchange& x, Chunk& c) {
  std::vector<Task> tasks;
  const std::size_t first = slice_of_seat(c.count, seats(), layout_.seat).begin;
  for (const Segment& segment : segments_of(layout_, c.count)) {
    const std::size_t at = segment.range.begin - first;
    Held held = c.held;
    for (const std::byte*& one : held) one += at * c.arithmetic.work_size();
    tasks.push_back(x.reduce(segment, plans_.between, std::move(held), c.arithmetic,
                             c.mine + at * c.arithmetic.size(), c.index, c.to));
  }
  for (Task& task : tasks) co_await task;
}

// The sums of all slices, to whom they are for on this host.
Task UcxCommunicator::share_slices(Chunk& c) {
  if (seats() == 1 || (c.to >= 0 && c.to != static_cast<int>(layout_.host))) co_return;
  const std::size_t bytes = c.count * c.arithmetic.size();
  const std::size_t width = slice_width(c.count, seats()) * c.arithmetic.size();
  const bool fits = width * seats() == bytes;
  const bool wants = c.o.kind != Kind::kReduce || rank_ == c.o.root;
  const Output all{fits && wants ? c.out() : c.room(scratch_, width * seats()), width * seats()};
  if (c.o.kind == Kind::kReduce) {
    const int root = seat_of(c.o.root);
    co_await local(Operation::gather({c.mine, width}, wants ? all : Output(), root));
  } else {
    co_await local(Operation::allgather({c.mine, width}, all));
  }
  if (!fits && wants) std::memcpy(c.out(), all.data(), bytes);
}

// Chunk by chunk; the local operations of all members of a host come in the same order.
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

std::size_t UcxCommunicator::most_seats() const {
  std::size_t most = 0;
  for (const auto& ranks : layout_.hosts) most = std::max(most, ranks.size());
  return most;
}

// Each letter and each rendezvous costs time of its own; members that share a host have something to do for
// the next chunk while one is on the wire, others have not.
std::size_t UcxCommunicator::chunk_bytes(std::size_t bytes) const {
  const std::size_t most = std::min(most_seats() * kMostOfSeat, kMostBytes);
  return most_seats() == 1 ? most : std::clamp(std::bit_floor(bytes / kParts), kChunkBytes, most);
}

bool UcxCommunicator::one_carries(std::size_t bytes) const {
  return bytes <= std::min(kChunkBytes, most_seats() * kSliceBytes);
}

int UcxCommunicator::carrier_of(std::size_t host, const Operation& o) const {
  const bool has_root = o.kind == Kind::kReduce && layout_.host_of(o.root) == host;
  return has_root ? o.root : layout_.hosts[host][0];
}

// The inputs of this host, folded as far as the tree allows, at the carrier.
Task UcxCommunicator::sum_host(Exchange& x, Chunk& c, int carrier) {
  const std::size_t bytes = c.o.in.size();
  const bool carries = rank_ == carrier;
  if (is_summed_by_local(c.arithmetic)) {
    const Output sum = carries ? Output(c.room(scratch_, bytes), bytes) : Output();
    co_await local(Operation::reduce(c.o.in, sum, seat_of(carrier), c.o.dtype, c.arithmetic.partial));
    if (carries) c.held = {sum.data()};
    co_return;
  }
  Held leaves{c.in()};
  if (seats() > 1) {
    const Output all = carries ? Output(c.room(scratch_, seats() * bytes), seats() * bytes) : Output();
    co_await local(Operation::gather(c.o.in, all, seat_of(carrier)));
    if (!carries) co_return;
    leaves.clear();
    for (std::size_t seat = 0; seat < seats(); ++seat) leaves.push_back(all.data() + seat * bytes);
  }
  leaves = widened(std::move(leaves), c.count, c.arithmetic, &c.keep);
  c.held = x.merged(plans_.local, leaves, c.count, c.arithmetic, &c.keep);
}

Task UcxCommunicator::reduce_at_one(Exchange& x, Operation o, int to) {
  const Arithmetic arithmetic = Arithmetic::of(o.dtype, o.op);
  Chunk c{o, arithmetic, to, 0, 0, o.in.size() / arithmetic.size()};
  const int carrier = carrier_of(layout_.host, o);
  co_await sum_host(x, c, carrier);
  if (rank_ == carrier) {
    const bool gets_result = to < 0 || to == static_cast<int>(layout_.host);
    c.mine = gets_result ? c.out() : c.room(scratch_, o.in.size());
    Segment whole{{0, c.count}, 0, {}};
    for (std::size_t host = 0; host < layout_.hosts.size(); ++host)
      whole.owners.push_back(carrier_of(host, o));
    co_await x.reduce(std::move(whole), plans_.between, std::move(c.held), arithmetic, c.mine, 0, to);
  }
  if (to < 0 && seats() > 1) co_await local(Operation::broadcast(o.out, seat_of(carrier)));
}

}  // namespace regroup::collective
