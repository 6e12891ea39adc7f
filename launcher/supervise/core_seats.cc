// Few seats and rare changes: the holders are counted each time.
#include "launcher/supervise/core_seats.h"

#include <algorithm>

namespace regroup::launcher {

std::vector<int> CoreSeats::take(core::MemberId member) {
  if (seats_.empty()) return {};
  std::vector<std::size_t> holders(seats_.size());
  for (const auto& [other, seat] : held_) ++holders[seat];
  const auto fewest = std::min_element(holders.begin(), holders.end());
  const auto seat = static_cast<std::size_t>(fewest - holders.begin());
  held_[member] = seat;
  return seats_[seat];
}

}  // namespace regroup::launcher
