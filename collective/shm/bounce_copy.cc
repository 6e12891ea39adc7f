// Copies between user memory and bounce buffers: inline chunks, chunks, and slices of chunks.
#include <algorithm>

#include "collective/shm/data_path.h"

namespace regroup::collective::shm {
namespace {

// True if each rank reads its peers' chunks in the same way and at the same time as they read its.
bool reads_others_chunks(Kind kind) { return !from_root(kind) && !to_root(kind); }

}  // namespace

// Prefetches at most as many bytes as the processor can fetch at a time.
void DataPath::prefetch_others(const Operation& o) const {
  constexpr std::size_t kMax = 1024;
  const auto self = static_cast<std::size_t>(rank_);
  for (std::size_t r = 0, sum = 0; r < buffers_.ranks() && sum < kMax; ++r) {
    if (r == self) continue;
    const std::size_t part = is_split(o.kind) ? part_of(r, self) : 0;
    const std::byte* from = buffers_.chunk(r, sync_.epoch() - 1) + part * plan_.stride;
    for (std::size_t at = 0; at < plan_.block && sum < kMax;
         at += reduce::kCacheLine, sum += reduce::kCacheLine) {
      __builtin_prefetch(from + at);
    }
  }
}

// No member reads these lines any more.
void DataPath::prefetch_next(const Operation& o, const Plan& plan) const {
  sync_.prefetch_next();
  const bool in_one_place = plan.uses_inline_chunks() || (plan.exits_eagerly && !is_split(o.kind));
  if (plan.in_arrival() || !in_one_place || !plan.contributes) return;
  const bool past =
      !plan.uses_inline_chunks() && tuners_.choice(o.kind, plan.placed) == reduce::Stores::kStream;
  if (past) return;  // streaming stores do not need the line in the cache
  constexpr std::size_t kMax = 2048;
  const auto self = static_cast<std::size_t>(rank_);
  const std::byte* next = buffers_.next_chunk(self, sync_.epoch(), plan.placed, plan.compact);
  std::size_t bytes = std::min(kMax, contribution_of(o).size());
  if (plan.uses_inline_chunks()) {
    next = reinterpret_cast<const std::byte*>(buffers_.inline_chunks(self, sync_.epoch()));
    bytes = inline_chunks_for(plan.block) * (is_split(o.kind) ? buffers_.ranks() : 1) *
            sizeof(InlineChunk);
  }
  for (std::size_t at = 0; at < bytes; at += 64) reduce::prefetch_for_write(next + at);
}

Input DataPath::send(const Operation& o) {
  if (!plan_.in_arrival() && plan_.block > 0)
    buffers_.place(sync_.epoch(), plan_.placed, plan_.compact);
  if (plan_.contributes && !plan_.in_arrival()) copy_in(o, 0);
  return arrival_payload(o);
}

void DataPath::receive(const Operation& o) {
  if (plan_.block == 0) return;
  set_sources(o, 0);
  copy_out(o, 0, sync_.epoch() - 1);
  if (plan_.streams()) reduce::complete_stores();
}

// Copies what the peers need of chunk `index` into the bounce buffer.
void DataPath::copy_in(const Operation& o, std::size_t index) {
  if (plan_.uses_inline_chunks()) {
    const bool keeps =
        o.kind == Kind::kAllreduce && inputs_[static_cast<std::size_t>(rank_)] == nullptr;
    return inline_.write(o, plan_.block, signature_, keeps);
  }
  if (to_root(o.kind) && rank_ == o.root && !plan_.by_slices) return;
  const std::uint64_t now = sync_.epoch();
  if (plan_.in_results())
    return static_cast<void>(tuners_.begin(plan_.tuner_key(o.kind), plan_.placed, now));
  if (offsets_.in != kNotInArena) return tuners_.skip(o.kind, plan_.placed, now);
  const reduce::Stores stores = tuners_.begin(o.kind, plan_.placed, now);
  tuners_.measure(now, [&] {
    fill_chunk(o, index, stores);
    if (stores == reduce::Stores::kStream)
      reduce::complete_stores();  // the arrival that follows may not fence
  });
  if (!reads_others_chunks(o.kind) || !context_.cores.spins()) end_chunk(o, index, now);
}

// Ends this rank's work on chunk `index`, which was copied in during `epoch`.
void DataPath::end_chunk(const Operation& o, std::size_t index, std::uint64_t epoch) {
  const std::size_t bytes = plan_.piece_bytes(index);
  // A short last chunk does not show the cost of a byte.
  const bool is_rest = index > 0 && 2 * bytes < plan_.piece;
  tuners_.end(plan_.tuner_key(o.kind), plan_.placed, epoch, is_rest ? 0 : bytes);
}

// Copies or reduces this rank's part of chunk `index`, which the peers copied in during `epoch`.
void DataPath::copy_out(const Operation& o, std::size_t index, std::uint64_t epoch) {
  tuners_.measure(epoch, [&] { deliver(o, index * plan_.piece, plan_.piece_bytes(index)); });
  end_chunk(o, index, epoch);
}

void DataPath::fill_chunk(const Operation& o, std::size_t index, reduce::Stores stores) {
  const auto self = static_cast<std::size_t>(rank_);
  const std::size_t bytes = plan_.piece_bytes(index);
  const std::byte* from = contribution_of(o).data() + index * plan_.piece;
  std::byte* to = buffers_.chunk(self, sync_.epoch());
  if (is_split(o.kind)) {
    for (std::size_t r = 0; r < buffers_.ranks(); ++r) {
      if (r != self) {
        reduce::store_block(to + part_of(self, r) * plan_.stride, from + r * plan_.block, bytes,
                            stores);
      }
    }
    return;
  }
  const reduce::ByteRange ours =
      plan_.by_slices ? reduce::slice_of(bytes, rank_, size()) : reduce::ByteRange{bytes, bytes};
  reduce::store_block(to, from, ours.begin, stores);
  reduce::store_block(to + ours.end, from + ours.end, bytes - ours.end, stores);
}

// Sets sources_ for chunk `index`, which was copied in one epoch ago: for each rank, the address at
// which this rank's part of that rank's contribution begins.
void DataPath::set_sources(const Operation& o, std::size_t index) {
  const auto part = is_split(o.kind) ? static_cast<std::size_t>(rank_) : 0;
  const auto part_index = [&](std::size_t r) { return is_split(o.kind) ? part_of(r, part) : 0; };
  for (std::size_t r = 0; r < buffers_.ranks(); ++r) {
    if (plan_.in_arrival() && size() > 1) {
      sources_[r] = sync_.payload_of(r) + part * plan_.block;
    } else if (plan_.uses_inline_chunks() && inputs_[r] == nullptr) {
      sources_[r] = inline_.destination(o, plan_.block, r).data();
    } else if (inputs_[r] != nullptr) {
      sources_[r] = inputs_[r] + part * plan_.block + index * plan_.piece;
    } else {
      sources_[r] = buffers_.chunk(r, sync_.epoch() - 1) + part_index(r) * plan_.stride;
    }
  }
}

// Writes this rank's slice of a chunk to its result, or to the place in its bounce buffer of its
// own contribution, which no other rank reads.
void DataPath::fold_slice(const Operation& o, std::size_t index) {
  const reduce::ByteRange mine = reduce::slice_of(plan_.piece_bytes(index), rank_, size());
  const std::uint64_t epoch = sync_.epoch() - 1;
  std::byte* to = plan_.in_results() ? o.out.data() + index * plan_.piece
                                     : buffers_.chunk(static_cast<std::size_t>(rank_), epoch);
  tuners_.measure(epoch, [&] {
    ranks_fold_.run(sources_, mine, to + mine.begin, o.dtype, o.op, tuners_.stores_of(epoch));
  });
}

void DataPath::collect_slices(const Operation& o, std::size_t index) {
  if (o.kind == Kind::kReduce && rank_ != o.root) return;
  const std::uint64_t epoch = sync_.epoch() - 2;
  std::byte* out = o.out.data() + index * plan_.piece;
  const reduce::Stores stores = plan_.in_results() ? tuners_.stores_of(epoch) : plan_.stores;
  tuners_.measure(epoch, [&] {
    for (std::size_t r = 0; r < buffers_.ranks(); ++r) {
      const reduce::ByteRange slice =
          reduce::slice_of(plan_.piece_bytes(index), static_cast<int>(r), size());
      const std::byte* from =
          plan_.in_results() ? results_[r] + index * plan_.piece : buffers_.chunk(r, epoch);
      copy(out + slice.begin, from + slice.begin, slice.size(), stores);
    }
    if (stores == reduce::Stores::kStream) reduce::complete_stores();
  });
  end_chunk(o, index, epoch);
}

}  // namespace regroup::collective::shm
