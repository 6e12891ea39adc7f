// Who of changing members is bound to which processors: a seat outlives the member that holds it.
#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "core/world.h"

namespace regroup::launcher {

class CoreSeats {
 public:
  // Processors of each seat, as numbers of the operating system. No seats: nobody is bound.
  explicit CoreSeats(std::vector<std::vector<int>> seats = {}) : seats_(std::move(seats)) {}

  // Of the seat that `member` holds from now on: the first of those that fewest hold. Empty without seats.
  [[nodiscard]] std::vector<int> take(core::MemberId member);
  // Its processes are dead or about to be; again is no error.
  void leave(core::MemberId member) { held_.erase(member); }

 private:
  std::vector<std::vector<int>> seats_;
  std::map<core::MemberId, std::size_t> held_;
};

}  // namespace regroup::launcher
