// Few seats and rare changes: the holders are counted each time.
#include "launcher/supervise/core_seats.h"

#include <algorithm>
#include <set>
#include <vector>

namespace regroup::launcher {

std::optional<std::size_t> CoreSeats::take(core::MemberId member,
                                           const std::function<bool(std::size_t)>& usable) {
  if (seats_ == 0) return std::nullopt;
  std::vector<std::size_t> holders(seats_);
  for (const auto& [other, seat] : held_) ++holders[seat];
  const std::size_t fewest = *std::min_element(holders.begin(), holders.end());
  std::optional<std::size_t> first;
  for (std::size_t seat = 0; seat < seats_; ++seat) {
    if (holders[seat] != fewest) continue;
    if (!usable || usable(seat)) return held_[member] = seat;
    if (!first) first = seat;
  }
  return held_[member] = *first;
}

std::size_t CoreSeats::free() const {
  std::set<std::size_t> taken;
  for (const auto& [member, seat] : held_) taken.insert(seat);
  return seats_ - taken.size();
}

}  // namespace regroup::launcher
