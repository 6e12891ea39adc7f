// Two members of a host that call begin_sum() at the same time may clear each other's first marks.
// Those blocks are then summed again if the sum is resumed, which is harmless.
#include "collective/sum_blocks.h"

namespace regroup::collective {

void begin_sum(const SumBlocks& blocks, proto::Generation g,
               std::span<const proto::Interval> kept) {
  if (blocks.marks.empty() || blocks.generation->load(std::memory_order_acquire) == g) return;
  for (std::uint32_t i = 0; i < blocks.marks.size(); ++i) {
    while (!kept.empty() && kept.front().end <= i) kept = kept.subspan(1);
    const bool stays = !kept.empty() && kept.front().contains(i);
    if (!stays && blocks.marks[i].load(std::memory_order_relaxed) == blocks.sum)
      blocks.marks[i].store(0, std::memory_order_relaxed);
  }
  blocks.generation->store(g, std::memory_order_release);
}

}  // namespace regroup::collective
