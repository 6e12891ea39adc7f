// The work of each operation between its synchronisation points. There are seven algorithms; all
// ranks choose the same one:
//   arrival        a contribution of at most 56 bytes travels as the payload of the arrival
//   inline chunks  a small contribution travels in inline chunks (inline_chunk.h)
//   chunks         contributions go through the bounce buffers chunk by chunk: in each epoch one
//                  chunk is copied in and the previous one delivered. Large reductions to all or
//                  to a root reduce the previous chunk by slices, one for each rank, and deliver
//                  the one before
//   direct         contributions that all lie in the arena are read in place, each at once; with
//                  ranks on several NUMA nodes a large shared result is reduced block by block in
//                  two levels (numa_domains.h)
//   results        an allreduce whose inputs and results all lie in the arena, one result for each
//                  rank: chunk by chunk each rank reduces its slice in its own result, from which
//                  the others copy it
//   all results    likewise, if they do not fit in the cache: each rank reduces its slice in one go
//                  and writes it to the results of all
//   single copy    contributions in ordinary memory are read in place by CMA (single_copy.cc)
// Chunks that lie in the arena are also read in place, whatever memory the other ranks use. No rank
// is done before all ranks have read such memory: if the last phase reads it, a synchronisation
// point follows. bounce_copy.cc fills and reads the bounce buffers. docs/design/shm.md has the
// memory traffic of each algorithm.
#include "collective/shm/data_path.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace regroup::collective::shm {
namespace {

// Smallest result for two levels, which need an additional synchronisation point for each block.
constexpr std::size_t kLevelsBytes = 256 << 10;
constexpr std::size_t kMinInResults = 512 << 10;  // smallest chunk that bypasses the bounce buffers
// Smallest result that each rank writes to the memory of all. Below it the next reader of the
// result finds more of it in its cache otherwise.
constexpr std::size_t kMinInAllResults = 16 << 20;
constexpr std::size_t kFoldAtOnce = 16 << 10;  // stays in the L1 cache until all have a copy
constexpr std::size_t kReadAtOnce = 1 << 20;   // read by CMA between two calls of may_read()
constexpr std::size_t kMinByLoads = 2 << 10;   // smaller copies use memcpy()

}  // namespace

DataPath::DataPath(const Context& context, std::vector<proto::SlotIndex> slots, int rank,
                   reduce::TreeFold ranks_fold, StorePolicy stores, SingleCopyMode single_copy)
    : context_(context),
      sync_(context.sync),
      rank_(rank),
      ranks_fold_(std::move(ranks_fold)),
      buffers_(context.arena, std::move(slots)),
      tuners_(stores),
      inline_(buffers_, sync_, rank),
      inputs_(buffers_.ranks()),
      results_(buffers_.ranks()),
      sources_(buffers_.ranks()),
      single_copy_(single_copy) {}

// Makes `o` the current operation. This rank reads its own contribution in place, unless other
// ranks may overwrite it with a shared result at any time, because input and result are the same
// memory.
void DataPath::begin(const Plan& plan, const CollectiveSignature& signature, const Operation& o) {
  plan_ = plan;
  signature_ = signature;
  phases_ = 2;
  offsets_ = {kNotInArena, kNotInArena, context_.numa_node.value_or(-1)};
  inline_.begin();
  if (plan_.in_arrival() && size() > 1) return;
  std::ranges::fill(inputs_, nullptr);
  const bool apart = o.in.data() != o.out.data();
  const bool stays = o.kind != Kind::kAllreduce || plan_.by_slices || size() == 1 || apart;
  if (plan_.contributes && stays)
    inputs_[static_cast<std::size_t>(rank_)] = contribution_of(o).data();
  if (!plan_.is_copied() && size() > 1) locate_in_arena(o);
}

void DataPath::begin_phases(const Plan& plan, const CollectiveSignature& signature,
                            const Operation& o, bool is_part) {
  begin(plan, signature, o);
  if (plan_.block == 0 || o.kind == Kind::kBarrier) return;
  if (size() == 1) {
    phases_ = 1;
    return;
  }
  plan_.first_chunk =
      !is_part && !plan_.is_copied() && single_copy_.tries(o.kind, plan_.block, buffers_.ranks())
          ? 1
          : 0;
  phases_ = plan_.first_chunk + chunks() + (plan_.by_slices ? 2 : 1);
}

Input DataPath::work(const Operation& o, std::uint64_t phase) {
  const Input payload = work_in(o, phase);
  if (plan_.streams()) reduce::complete_stores();  // the arrival that follows may not fence
  return payload;
}

Input DataPath::work_in(const Operation& o, std::uint64_t phase) {
  if (o.kind == Kind::kBarrier || plan_.block == 0) return {};
  if (size() == 1) {
    set_sources(o, 0);
    deliver(o, 0, plan_.block);
    return {};
  }
  if (plan_.offers_single_copy() && phase == 0) return expose_memory(o);
  if (plan_.single_copy()) return phase == 1 ? single_copy_.vote() : Input();
  if (plan_.route == Route::kTwoLevels) {
    if (phase >= 1) fold_in_two_levels(o, phase - 1);
    return {};
  }
  if (plan_.route == Route::kDirect) {
    if (phase == 1) set_sources(o, 0);
    if (phase == 1 && same_output_) fold_all_into_shared(o);
    if (phase == 1 && !same_output_) deliver(o, 0, plan_.block);
    return {};
  }
  if (plan_.route == Route::kInAllResults) {
    if (phase == 1) set_sources(o, 0);
    if (phase == 1) fold_into_all(o);
    return {};
  }
  phase -= plan_.first_chunk;
  const std::size_t chunks = this->chunks();
  if (phase < chunks && !plan_.in_arrival() && !plan_.in_results())
    buffers_.place(sync_.epoch(), plan_.placed, plan_.compact);
  if (phase < chunks && plan_.contributes && !plan_.in_arrival()) copy_in(o, phase);
  if (phase >= 1 && phase <= chunks) {
    set_sources(o, phase - 1);
    if (plan_.by_slices) fold_slice(o, phase - 1);
    if (!plan_.by_slices) copy_out(o, phase - 1, sync_.epoch() - 1);
  }
  if (phase >= 2 && phase < chunks + 2 && plan_.by_slices) collect_slices(o, phase - 2);
  return phase == 0 && !plan_.offers_single_copy() ? arrival_payload(o) : Input();
}

// Finds the offsets in the arena of this rank's input and result; memory in the arena is not
// copied.
void DataPath::locate_in_arena(const Operation& o) {
  const Input in = contribution_of(o);
  const bool whole_at_once =
      o.kind == Kind::kAlltoall || (o.kind == Kind::kAllreduce && !plan_.by_slices);
  const bool overwritten = whole_at_once && o.in.data() == o.out.data();  // before all have read it
  if (plan_.contributes && !overwritten)
    offsets_.in = context_.arena.offset_of(in).value_or(kNotInArena);
  offsets_.out = context_.arena.offset_of(o.out).value_or(kNotInArena);
  if (offsets_.in != kNotInArena) inputs_[static_cast<std::size_t>(rank_)] = in.data();
}

// The payload of the first arrival: the data itself, or its offset in the arena.
Input DataPath::arrival_payload(const Operation& o) const {
  if (plan_.in_arrival()) return plan_.contributes ? contribution_of(o) : Input();
  return std::as_bytes(std::span(&offsets_, 1));
}

void DataPath::collect_offsets(const Operation& o) {
  if (plan_.in_arrival() || size() == 1 || plan_.block == 0 || o.kind == Kind::kBarrier) return;
  bool all_in_arena = true;
  bool some_in_arena = false;
  bool results_in_arena = true;
  same_output_ = o.kind == Kind::kAllreduce;
  for (std::size_t r = 0; r < buffers_.ranks(); ++r) {
    Offsets theirs;
    std::memcpy(&theirs, sync_.payload_of(r), sizeof theirs);
    const bool contributes = !from_root(o.kind) || static_cast<int>(r) == o.root;
    if (theirs.in != kNotInArena) inputs_[r] = context_.arena.at(theirs.in);
    all_in_arena = all_in_arena && (!contributes || theirs.in != kNotInArena);
    some_in_arena = some_in_arena || theirs.in != kNotInArena;
    results_[r] = theirs.out != kNotInArena ? context_.arena.at(theirs.out) : nullptr;
    results_in_arena = results_in_arena && theirs.out != kNotInArena;
    if (r == 0) offsets_.out = theirs.out;
    same_output_ = same_output_ && theirs.out == offsets_.out && theirs.out != kNotInArena;
  }
  const bool reduces_for_all = o.kind == Kind::kAllreduce || o.kind == Kind::kReduce;
  if (all_in_arena && (same_output_ || !reduces_for_all)) {
    plan_.route = Route::kDirect;
    phases_ = 3;
    choose_stores(plan_, o, size(), same_output_ || to_root(o.kind) ? 1 : buffers_.ranks(), 0);
    if (same_output_) choose_levels(o);
    if (plan_.route == Route::kTwoLevels)
      phases_ += (plan_.block + levels_->block() - 1) / levels_->block();
  } else if (all_in_arena && results_in_arena && plan_.by_slices && o.kind == Kind::kAllreduce) {
    if (plan_.block < kMinInAllResults) {
      fold_in_results(o);
    } else {
      plan_.route = Route::kInAllResults;
      phases_ = 3;
      choose_stores(plan_, o, size(), buffers_.ranks(), 0);
    }
  } else if (plan_.offers_single_copy() &&
             single_copy_.collect(o, buffers_.ranks(),
                                  [&](std::size_t r) { return sync_.payload_of(r); })) {
    plan_.route = Route::kSingleCopy;
    phases_ = 3;
  } else if (some_in_arena && !plan_.by_slices) {
    phases_ += 1;  // slices are reduced before the last point, all else after it
  }
}

// The payload that exposes this rank's memory to its peers, unless this rank may overwrite it
// before all have read it.
Input DataPath::expose_memory(const Operation& o) {
  const bool overwritten = o.kind == Kind::kAlltoall && o.in.data() == o.out.data();
  RemoteBuffer memory;
  if (plan_.contributes && !overwritten) memory = context_.canary.expose(contribution_of(o));
  return single_copy_.announce(offsets_, memory);
}

// Contributions in the arena, and this rank's own, are copied without the kernel.
base::Status DataPath::read_all(const Operation& o, const MayRead& may_read) {
  const bool receives = o.kind == Kind::kGather      ? rank_ == o.root
                        : o.kind == Kind::kBroadcast ? rank_ != o.root
                                                     : true;
  const std::size_t ranks = buffers_.ranks();
  bool can_read = true;
  for (std::size_t i = 0; receives && i < ranks && can_read; ++i) {
    // Each rank starts with another peer.
    const std::size_t r = (static_cast<std::size_t>(rank_) + i) % ranks;
    if (from_root(o.kind) && static_cast<int>(r) != o.root) continue;
    const std::size_t from = is_split(o.kind) ? static_cast<std::size_t>(rank_) * plan_.block : 0;
    const Output to = o.out.subspan(from_root(o.kind) ? 0 : r * plan_.block, plan_.block);
    if (inputs_[r] != nullptr) {
      copy(to.data(), inputs_[r] + from, to.size(), plan_.stores_from(r, rank_));
      continue;
    }
    for (std::size_t at = 0; at < to.size() && can_read; at += kReadAtOnce) {
      REGROUP_RETURN_IF_ERROR(may_read(r));
      const Output piece = to.subspan(at, std::min(kReadAtOnce, to.size() - at));
      can_read = single_copy_.read(r, from + at, piece);
    }
  }
  return {};
}

void DataPath::collect_votes() {
  if (single_copy_.count_votes(buffers_.ranks(),
                               [&](std::size_t r) { return sync_.payload_of(r); }))
    return;
  plan_.route = Route::kAsItTravels;
  plan_.first_chunk = 2;
  // One phase more than chunks need, for contributions in the arena, which the last phase reads.
  phases_ = plan_.first_chunk + chunks() + 2;
}

// Each rank reduces its slice in its own result, from which the others copy it. No other rank reads
// that part as an input, even if input and result are the same memory. No rank leaves the operation
// before all have copied.
void DataPath::fold_in_results(const Operation& o) {
  plan_.route = Route::kInResults;
  plan_.piece = std::max(kMinInResults, buffers_.ranks() * kChunk);
  static_cast<void>(tuners_.begin(plan_.tuner_key(o.kind), plan_.placed, sync_.epoch() - 1));
  phases_ = chunks() + 3;
}

// No other rank reads or writes this rank's slice of any input or result. A result that replaces
// its input is written through the cache, where its lines are already; others past it, except for
// this rank's own, from which the copies are made.
void DataPath::fold_into_all(const Operation& o) {
  const reduce::ByteRange mine = reduce::slice_of(plan_.block, rank_, size());
  for (std::size_t at = mine.begin; at < mine.end; at += kFoldAtOnce) {
    const reduce::ByteRange block{at, std::min(at + kFoldAtOnce, mine.end)};
    std::byte* const own = o.out.data() + at;
    ranks_fold_.run(sources_, block, own, o.dtype, o.op, reduce::Stores::kPlain);
    for (std::size_t r = 0; r < buffers_.ranks(); ++r) {
      const bool replaces = results_[r] == inputs_[r];
      copy(results_[r] + at, own, block.size(), replaces ? reduce::Stores::kPlain : plan_.stores);
    }
  }
}

void DataPath::fold_all_into_shared(const Operation& o) {
  const reduce::ByteRange mine = reduce::slice_of(plan_.block, rank_, size());
  ranks_fold_.run(sources_, mine, o.out.data() + mine.begin, o.dtype, o.op, plan_.stores);
}

// Not for 16-bit types, whose sums would be rounded between the levels.
void DataPath::choose_levels(const Operation& o) {
  if (plan_.block < kLevelsBytes || o.dtype == Dtype::kFloat16 || o.dtype == Dtype::kBfloat16)
    return;
  if (!std::exchange(levels_chosen_, true)) {
    std::vector<int> nodes;
    for (std::size_t r = 0; r < buffers_.ranks(); ++r) {
      Offsets theirs;
      std::memcpy(&theirs, sync_.payload_of(r), sizeof theirs);
      nodes.push_back(static_cast<int>(theirs.numa_node));
    }
    auto levels = TwoLevels::make(nodes, static_cast<std::size_t>(rank_), kChunk);
    if (levels.ok() && std::ranges::count(nodes, -1) == 0) levels_ = std::move(levels).value();
  }
  if (levels_) plan_.route = Route::kTwoLevels;
}

// Reduces block `index` within the NUMA nodes, and the previous block, whose sums are complete,
// between them.
void DataPath::fold_in_two_levels(const Operation& o, std::size_t index) {
  const auto block = [&](std::size_t i) {
    const std::size_t begin = i * levels_->block();
    return reduce::ByteRange{std::min(begin, plan_.block),
                             std::min(begin + levels_->block(), plan_.block)};
  };
  const std::uint64_t now = sync_.epoch();
  if (index > 0 && block(index - 1).size() > 0) {
    const auto sums_of = [&](std::size_t owner) { return buffers_.chunk(owner, now - 1); };
    levels_->reduce_inter(inputs_, block(index - 1), sums_of, o.out.data(), o.dtype, o.op,
                          plan_.stores);
  }
  if (block(index).size() == 0) return;
  buffers_.place(now, kChunk, false);
  levels_->reduce_intra(inputs_, block(index), buffers_.chunk(static_cast<std::size_t>(rank_), now),
                        o.dtype, o.op);
}

// Delivers this rank's data from sources_ to its output: bytes at..at+bytes of each block.
void DataPath::deliver(const Operation& o, std::size_t at, std::size_t bytes) {
  const auto root = static_cast<std::size_t>(o.root);
  if (to_root(o.kind) && rank_ != o.root) return;
  if (o.kind == Kind::kBroadcast && rank_ == o.root) return;
  switch (o.kind) {
    case Kind::kAllreduce:
    case Kind::kReduce:
    case Kind::kReduceScatter:
      ranks_fold_.run(sources_, {0, bytes}, o.out.data() + at, o.dtype, o.op, plan_.stores);
      return;
    case Kind::kBroadcast:
    case Kind::kScatter:
      copy(o.out.data() + at, sources_[root], bytes, plan_.stores);
      return;
    case Kind::kAllgather:
    case Kind::kGather:
    case Kind::kAlltoall:
      for (std::size_t r = 0; r < buffers_.ranks(); ++r) {
        copy(o.out.data() + r * plan_.block + at, sources_[r], bytes, plan_.stores_from(r, rank_));
      }
      return;
    default:
      return;
  }
}

// If some contributions are in the arena there is one more synchronisation point; this member must
// know of it before it decides.
bool DataPath::may_exit_eagerly(const Operation& o, std::uint64_t phase) const {
  const bool last = phase + 1 == phases_;
  const bool heard = plan_.is_copied() || from_root(o.kind) || phase > 1;
  return plan_.exits_eagerly && last && heard && offsets_.in == kNotInArena && !plan_.single_copy();
}

// After an eager exit: the root's own block of a scatter, from the last chunk.
void DataPath::deliver_own(const Operation& o) {
  if (o.kind != Kind::kScatter) return;
  const std::size_t last = (plan_.block - 1) / plan_.piece;
  set_sources(o, last);
  deliver(o, last * plan_.piece, plan_.piece_bytes(last));
  if (plan_.streams()) reduce::complete_stores();  // the last arrival was before these stores
}

void DataPath::copy(std::byte* to, const std::byte* from, std::size_t bytes,
                    reduce::Stores stores) const {
  if (to == from || bytes == 0) return;
  if (stores == reduce::Stores::kPlain && bytes >= kMinByLoads)
    return ranks_fold_.kernels().copy(to, from, bytes);
  reduce::store_block(to, from, bytes, stores);
}

}  // namespace regroup::collective::shm
