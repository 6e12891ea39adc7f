// There are few slots and few changes, so the members of each slot are counted at each call.
#include "launcher/process/core_slots.h"

#include <algorithm>
#include <set>
#include <vector>

namespace regroup::process {

std::optional<std::size_t> CoreSlots::take(proto::MemberId member,
                                           const std::function<bool(std::size_t)>& usable) {
  if (slots_ == 0) return std::nullopt;
  std::vector<std::size_t> holders(slots_);
  for (const auto& [other, slot] : held_) ++holders[slot];
  const std::size_t fewest = *std::min_element(holders.begin(), holders.end());
  std::optional<std::size_t> first;
  for (std::size_t slot = 0; slot < slots_; ++slot) {
    if (holders[slot] != fewest) continue;
    if (!usable || usable(slot)) return held_[member] = slot;
    if (!first) first = slot;
  }
  return held_[member] = *first;
}

std::size_t CoreSlots::free() const {
  std::set<std::size_t> taken;
  for (const auto& [member, slot] : held_) taken.insert(slot);
  return slots_ - taken.size();
}

}  // namespace regroup::process
