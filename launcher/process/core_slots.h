// Assigns members to core slots: a slot is a set of cores that a member is bound to, and outlives
// its members.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>

#include "proto/world.h"

namespace regroup::process {

class CoreSlots {
 public:
  explicit CoreSlots(std::size_t slots) : slots_(slots) {}

  // Assigns `member` to the first `usable` slot among those with the fewest members, or to the
  // first of them if none is usable. Returns its number; nullopt if there are no slots.
  [[nodiscard]] std::optional<std::size_t> take(
      proto::MemberId member, const std::function<bool(std::size_t)>& usable = {});
  // Frees the slot of a member whose processes are dead or were killed. May be called twice.
  void leave(proto::MemberId member) { held_.erase(member); }
  // The number of slots without a member.
  [[nodiscard]] std::size_t free() const;

 private:
  std::size_t slots_;
  std::map<proto::MemberId, std::size_t> held_;
};

}  // namespace regroup::process
