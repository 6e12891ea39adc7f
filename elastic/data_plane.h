// The communicators of a member's World: over the arena if all members are on one host, else over
// the network. Used by the training thread only.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "elastic/participant.h"
#include "proto/world.h"
#include "regroup/communicator.h"

namespace regroup::collective::ucx {
class UcxContext;
class PeerMesh;
}  // namespace regroup::collective::ucx

namespace regroup::elastic {

// True if the World has members on other hosts.
[[nodiscard]] bool spans_hosts(Participant& self);

class DataPlane {
 public:
  explicit DataPlane(Participant& self) : self_(self) {}

  // Opens the communicators of the World that the participant has just entered. Does not block.
  // kUnavailable: the World spans several hosts and libucp cannot be loaded.
  [[nodiscard]] base::Status enter();
  // What is published with this member's address in the next enter(); empty: nothing.
  void set_note(std::vector<std::byte> note) { note_ = std::move(note); }
  // What another member has published so; empty while that is not known.
  [[nodiscard]] std::optional<std::vector<std::byte>> note_of(proto::MemberId member);
  // The communicator of all members, for steps. Valid until the next enter().
  [[nodiscard]] collective::Communicator& step_communicator() { return *steps_; }
  // True if the World has members on other nodes.
  [[nodiscard]] bool spans_hosts() const { return spans_hosts_; }
  // Opens a communicator of the members `ranks`, for the collective section at `at`.
  [[nodiscard]] base::Result<std::unique_ptr<collective::Communicator>> open_section(
      proto::Position at, std::vector<int> ranks);
  // Opens a communicator of this member alone: no revoke ends it, and it works before the first
  // World.
  [[nodiscard]] base::Result<std::unique_ptr<collective::Communicator>> open_section_alone(
      proto::Position at);

 private:
  [[nodiscard]] base::Status open_mesh();
  [[nodiscard]] base::Status open_carrier();
  [[nodiscard]] base::Status publish(std::span<const std::byte> address);
  [[nodiscard]] std::optional<std::vector<std::byte>> address_of(proto::MemberId member);

  Participant& self_;
  // Opened for the first World that needs it.
  std::shared_ptr<const collective::ucx::UcxContext> ucx_;
  // Of this World, if it spans several hosts or its plane is ucx.
  std::shared_ptr<collective::ucx::PeerMesh> mesh_;
  bool spans_hosts_ = false;
  std::vector<std::byte> note_;
  std::unique_ptr<collective::Communicator> steps_;
  shmem::Arena alone_;  // for open_section_alone(); the agent does not know it, so cannot revoke
};

}  // namespace regroup::elastic
