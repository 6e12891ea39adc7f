// Chooses the data plane of a World from what its members say of themselves. Pure functions, with
// the reason as a sentence for `regroup status`. docs/design/planes.md.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "proto/plane.h"
#include "proto/world.h"

namespace regroup::membership {

struct PlaneMember {
  proto::MemberId id = 0;
  proto::NodeId node = 0;
  std::string host;  // name of the node; "": the job has a single one
  // Null: not known, since its version reports none. It then counts as a member that can use shm,
  // staged and ucx, with gradients in the same memory as the others'.
  const proto::PlaneFacts* facts = nullptr;
};

// Of --plane; empty: auto.
using PlaneRequest = std::optional<proto::Plane>;

struct PlaneVerdict {
  std::optional<proto::Plane> plane;  // empty: no World of these members can be formed
  // With a plane: its name and why no faster one was chosen ("staged over shm: cuda is not viable:
  // built without nvcc"). Without: why there is none, and what to do.
  std::string sentence;
};

// auto: the fastest plane that every member calls viable, for the memory of their gradients and the
// number of their hosts. A requested plane, or none. With members added the choice only gets
// slower, or empty. `members`: at least one.
[[nodiscard]] PlaneVerdict choose_plane(std::span<const PlaneMember> members, PlaneRequest request);

// "its gradients are in the host's memory, those of member 0 (host a) in memory of a GPU", or "" if
// both have them in the same memory, or one is not known.
[[nodiscard]] std::string other_memory(const PlaneMember& member, const PlaneMember& first);

}  // namespace regroup::membership
