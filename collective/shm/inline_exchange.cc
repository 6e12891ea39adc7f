// Decides which rank writes and fetches which inline chunks in each kind of operation.
#include "collective/shm/inline_exchange.h"

#include <algorithm>

#include "collective/shm/plan.h"

namespace regroup::collective::shm {

Output InlineExchange::destination(const Operation& o, std::size_t block, std::size_t rank) {
  constexpr std::size_t kRoom = kInlineChunks * sizeof(InlineChunk::payload);
  if (from_root(o.kind)) return o.out;
  if (gathers(o.kind)) return o.out.subspan(rank * block, block);
  if (to_reduce_.empty()) to_reduce_.resize(buffers_.ranks() * kRoom);
  return Output(to_reduce_).subspan(rank * kRoom, block);
}

void InlineExchange::write(const Operation& o, std::size_t block,
                           const CollectiveSignature& signature, bool keeps) {
  if (to_root(o.kind) && rank_ == o.root) return;
  const auto self = static_cast<std::size_t>(rank_);
  const ChunkTag tag = sync_.next_tag(signature);
  InlineChunk* to = buffers_.inline_chunks(self, sync_.epoch());
  if (keeps) std::ranges::copy(o.in, destination(o, block, self).begin());
  const std::size_t parts = is_split(o.kind) ? buffers_.ranks() : 1;
  for (std::size_t r = 0; r < parts; ++r) {
    if (parts > 1 && r == self) continue;
    write_inline_chunks(to + r * inline_chunks_for(block), tag,
                        contribution_of(o).subspan(r * block, block));
  }
}

bool InlineExchange::fetch(const Operation& o, std::size_t block) {
  const auto self = static_cast<std::size_t>(rank_);
  const std::size_t at = is_split(o.kind) ? self * inline_chunks_for(block) : 0;
  for (std::size_t& r = fetched_ranks_; r < buffers_.ranks(); ++r) {
    const bool contributes =
        from_root(o.kind) ? static_cast<int>(r) == o.root : !to_root(o.kind) || rank_ == o.root;
    if (r == self || !contributes) continue;
    const InlineChunk* chunks = buffers_.inline_chunks(r, sync_.epoch() - 1) + at;
    if (!read_inline_chunks(chunks, sync_.tag(), destination(o, block, r))) return false;
  }
  return true;
}

}  // namespace regroup::collective::shm
