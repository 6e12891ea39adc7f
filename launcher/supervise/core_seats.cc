// Few seats and rare changes: the holders are counted each time.
#include "launcher/supervise/core_seats.h"

#include <algorithm>
#include <set>
#include <vector>

namespace regroup::launcher {

std::optional<std::size_t> CoreSeats::take(core::MemberId member) {
  if (seats_ == 0) return std::nullopt;
  std::vector<std::size_t> holders(seats_);
  for (const auto& [other, seat] : held_) ++holders[seat];
  const auto fewest = std::min_element(holders.begin(), holders.end());
  return held_[member] = static_cast<std::size_t>(fewest - holders.begin());
}

std::size_t CoreSeats::free() const {
  std::set<std::size_t> taken;
  for (const auto& [member, seat] : held_) taken.insert(seat);
  return seats_ - taken.size();
}

}  // namespace regroup::launcher
