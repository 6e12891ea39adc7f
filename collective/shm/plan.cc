// Chooses the algorithm of an operation (data_path.cc lists them) by its kind and size. The limits
// were measured.
#include "collective/shm/plan.h"

#include <algorithm>

#include "base/cpu.h"
#include "collective/shm/bounce_buffer.h"
#include "collective/shm/cache.h"

namespace regroup::collective::shm {
namespace {

constexpr std::size_t kFewRanks = 4;
// Total size of the inputs up to which each rank that receives the result reduces all of it.
std::size_t max_folded_alone(Kind kind) { return (kind == Kind::kReduce ? 128 : 32) << 10; }
// Contributions up to this size are copied even from the arena, since a copy costs less than a
// synchronisation point (which takes longest if ranks share cores), and then a root need not wait
// for the others. In a small all-reduce, each rank reduces everything. Beyond these limits, an
// allgather or reduce_scatter entirely in the arena would be slower.
std::size_t max_copied(Kind kind, std::size_t ranks, bool shares_cores) {
  constexpr std::size_t kKiB = 1 << 10;
  if (kind == Kind::kAllreduce) {
    return std::max(2 * kKiB,
                    std::min(max_folded_alone(kind) / ranks, (shares_cores ? 32 : 4) * kKiB));
  }
  return (from_root(kind) || kind == Kind::kAlltoall || shares_cores ? 32 : 8) * kKiB;
}

// On AMD processors the cost of inline chunks grows with their number, that of data with a separate
// flag does not: 1 KiB between two ranks takes 0.35 us as inline chunks and 0.19 with a flag in a
// broadcast, 1.07 and 0.42 in an all-reduce. On Intel processors a root's inline chunks take half
// as long as data with a flag; other kinds were not compared there.
std::size_t max_inline_chunks(Kind kind, InlineMode mode) {
  static const bool kAmd = base::is_amd();
  if (mode == InlineMode::kNever) return 0;
  if (!kAmd || mode == InlineMode::kAlways) return kInlineChunks;
  return from_root(kind) ? 2 : 0;
}

// Sizes of contributions that use the compact ring: there, with two ranks, inputs, outputs and
// bounce buffers are together about as large as the cache, and each chunk is written and read once.
// Measured: docs/design/bounce_buffers.md.
bool uses_compact_ring(Kind kind, std::size_t whole) {
  constexpr std::size_t kMiB = 1 << 20;
  if (kind == Kind::kAllgather) return whole >= 2 * kMiB && whole <= 4 * kMiB;
  return kind == Kind::kAlltoall && whole >= kMiB;
}

// Upper limit for the cache size: a larger cache is shared with other virtual machines (480 MiB on
// the machine that was measured).
constexpr std::size_t kMaxCache = 32 << 20;

std::size_t last_level() {
  static const std::size_t kBytes = std::min(last_level_cache(), kMaxCache);
  return kBytes;
}

}  // namespace

void choose_stores(Plan& plan, const Operation& o, int size, std::size_t results,
                   std::size_t through) {
  const auto ranks = static_cast<std::size_t>(size);
  const std::size_t one = o.block(size) * (is_split(o.kind) ? ranks : 1);  // contribution
  const std::size_t contributors = from_root(o.kind) ? 1 : ranks;
  const bool in_place = overlap(o.in, o.out);
  const StoreHint what = store_hint(o.kind, in_place, through > 0);
  const std::size_t touched =
      footprint(o.kind, in_place, one * contributors, o.out.size() * results) +
      std::min(one, through) * contributors;
  plan.stores = stores_of(what, touched, last_level());
  plan.own_stores =
      stores_of(what == StoreHint::kKept ? what : StoreHint::kCopied, touched, last_level());
}

reduce::Stores stores_of_shared_result(std::size_t bytes, std::size_t ranks,
                                       std::size_t ring_capacity) {
  const std::size_t inputs = bytes + std::min(bytes, ring_capacity);
  return stores_of(StoreHint::kKept, bytes + inputs * ranks, last_level());
}

namespace {

Travel travel_of(const Operation& o, std::size_t block, const Planning& with, bool closes) {
  const auto ranks = static_cast<std::size_t>(with.size);
  const std::size_t parts = is_split(o.kind) ? ranks : 1;
  if (block * parts <= SyncPoints::kPayload) return Travel::kInArrivals;
  if (block * parts > max_copied(o.kind, ranks, with.shares_cores)) return Travel::kInChunks;
  const std::size_t inline_chunks = inline_chunks_for(block) * parts;
  const bool fits = inline_chunks <= max_inline_chunks(o.kind, with.inline_mode);
  return fits && ranks > 1 && !closes && !with.shares_cores ? Travel::kInInlineChunks
                                                            : Travel::kInOneChunk;
}

}  // namespace

Plan plan_of(const Operation& o, const Planning& with, bool closes, bool is_part) {
  const auto ranks = static_cast<std::size_t>(with.size);
  Plan plan{.block = o.block(with.size)};
  // The bytes of one contribution.
  const std::size_t whole = is_split(o.kind) ? plan.block * ranks : plan.block;
  plan.contributes = !from_root(o.kind) || with.rank == o.root;
  plan.travel = travel_of(o, plan.block, with, closes);
  plan.exits_eagerly = plan.block > 0 && ranks > 1 && (from_root(o.kind) || to_root(o.kind)) &&
                       from_root(o.kind) == (with.rank == o.root);
  plan.compact = uses_compact_ring(o.kind, whole);
  const std::size_t results = to_root(o.kind) ? 1 : ranks;
  const std::size_t ring =
      plan.compact ? std::min(SlotRing::kCompactRing, with.ring_capacity) : with.ring_capacity;
  choose_stores(plan, o, with.size, results, ring);
  // With small chunks the next copy begins sooner. With many ranks, and in parts of operations over
  // several hosts, the extra synchronisation points cost more than that gains.
  const std::size_t chunk = ranks <= kFewRanks && !is_part ? kChunk / 2 : kChunk;
  plan.piece = is_split(o.kind) && ranks > 1
                   ? chunk / (ranks - 1) / reduce::kCacheLine * reduce::kCacheLine
                   : chunk;
  if (plan.in_arrival() || ranks == 1) plan.piece = plan.block;
  plan.stride = std::min(
      plan.piece, (plan.block + reduce::kCacheLine - 1) / reduce::kCacheLine * reduce::kCacheLine);
  plan.placed = plan.stride * (is_split(o.kind) ? ranks - 1 : 1);
  plan.by_slices = (o.kind == Kind::kAllreduce || o.kind == Kind::kReduce) &&
                   plan.block * ranks > max_folded_alone(o.kind) && ranks > 1;
  return plan;
}

}  // namespace regroup::collective::shm
