// Which of changing members is bound to which processors: a seat, which has some, outlives its holders.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>

#include "core/world.h"

namespace regroup::launcher {

class CoreSeats {
 public:
  explicit CoreSeats(std::size_t seats) : seats_(seats) {}

  // The number of the seat that `member` holds from now on: of those that fewest hold the first that is
  // `usable`; the first where none is. None where there are no seats.
  [[nodiscard]] std::optional<std::size_t> take(core::MemberId member,
                                                const std::function<bool(std::size_t)>& usable = {});
  // Its processes are dead or about to be; again is no error.
  void leave(core::MemberId member) { held_.erase(member); }
  // Seats that nobody holds.
  [[nodiscard]] std::size_t free() const;

 private:
  std::size_t seats_;
  std::map<core::MemberId, std::size_t> held_;
};

}  // namespace regroup::launcher
