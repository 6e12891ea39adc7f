// The communicators of the World that a member is in: over the arena where all its members are on one node,
// over the network where they are not. Used by the training thread.
#pragma once

#include <memory>
#include <vector>

#include "collective/communicator.h"
#include "core/status.h"
#include "core/world.h"
#include "elastic/participant.h"

namespace regroup::collective {
class UcxContext;
class PeerMesh;
}  // namespace regroup::collective

namespace regroup::elastic {

class DataPlane {
 public:
  explicit DataPlane(Participant& self) : self_(self) {}

  // For the World that the participant has just entered. Blocks for nobody. kUnavailable: the World is on
  // several nodes and libucp is not there.
  [[nodiscard]] core::Status enter();
  // Of all members, for steps. Valid until the next enter().
  [[nodiscard]] collective::Communicator& steps() { return *steps_; }
  [[nodiscard]] bool spans_hosts() const { return mesh_ != nullptr; }  // members of other nodes take part
  // Of the members `ranks`, for the region at `at`.
  [[nodiscard]] core::Result<std::unique_ptr<collective::Communicator>> open_section(core::Position at,
                                                                                     std::vector<int> ranks);
  // Of this member alone, whatever becomes of its World; before its first too.
  [[nodiscard]] core::Result<std::unique_ptr<collective::Communicator>> open_section_alone(core::Position at);

 private:
  [[nodiscard]] core::Status open_mesh();

  Participant& self_;
  std::shared_ptr<const collective::UcxContext> ucx_;  // once a World needed it
  std::shared_ptr<collective::PeerMesh> mesh_;         // of this World, if it is on several nodes
  std::unique_ptr<collective::Communicator> steps_;
  core::Arena alone_;  // where a revoke of the generation does not reach
};

}  // namespace regroup::elastic
