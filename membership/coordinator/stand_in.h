// Which plane stands in for one that a World has lost.
#pragma once

#include <optional>

#include "proto/plane.h"

namespace regroup::membership {

// By which members of `plane` go on by themselves, with the same bits, once they have lost it
// (proto::CarrierLost); empty: no member goes on.
constexpr std::optional<proto::Plane> stand_in(proto::Plane plane) {
  if (plane == proto::Plane::kMpi) return proto::Plane::kUcx;
  if (plane == proto::Plane::kNccl) return proto::Plane::kStaged;
  return std::nullopt;
}

}  // namespace regroup::membership
