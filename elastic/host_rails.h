// Plane nccl of a session: connects this member's rail to the other hosts of a World. Until all
// members are connected, gradients go through the host. docs/design/nccl_plane.md.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "collective/nccl/comm.h"
#include "collective/nccl/rails.h"
#include "elastic/data_plane.h"
#include "elastic/device_plane.h"
#include "elastic/device_stream.h"
#include "elastic/participant.h"

namespace regroup::elastic {

// Training thread only.
class HostRails {
 public:
  // All must outlive this object.
  // `limit`: of a communicator's start, after which gradients go through the host until the next
  // World; and of its end in the background, after which they do in all later Worlds, until that
  // is over.
  HostRails(const DeviceStream& stream, Participant& self, DataPlane& data_plane,
            DevicePlane& plane, base::Duration limit)
      : stream_(stream), self_(self), data_plane_(data_plane), plane_(plane), limit_(limit) {}
  // Aborts a communicator that still connects, so that no thread of NCCL is left.
  ~HostRails();
  HostRails(const HostRails&) = delete;
  HostRails& operator=(const HostRails&) = delete;

  // Call in each World, before DataPlane::enter(): ends what was of the last World and, in one of
  // plane nccl over several hosts, prepares what this member publishes with its address. If NCCL
  // fails, gradients go through the host in this World. Does not wait for others.
  [[nodiscard]] base::Status enter();

  // What a member says in the vote of a step; all begin a phase after the same vote.
  struct Vote {
    bool knows = false;      // the members of its rail, and their id
    bool connected = false;  // or on no rail
  };
  // Finds out. Does not block.
  [[nodiscard]] Vote vote();
  // The result of the vote: what all members have said.
  [[nodiscard]] base::Status on_vote(Vote all);
  // Call in each step: says when the end of a communicator in the background takes too long.
  void watch();
  // True in a World of plane nccl whose hosts are connected.
  [[nodiscard]] bool connected() const { return phase_ == Phase::kConnected; }

 private:
  enum class Phase { kOff, kAsking, kConnecting, kConnected };

  // A communicator of an earlier World, until its start has returned and its abort is over.
  struct Ended {
    proto::Generation generation;
    collective::nccl::Comm::Ending ending;
    std::string late = {};  // why it is late; "": it is not
  };

  // A communicator of an earlier World whose end is late; null: none.
  [[nodiscard]] const Ended* late() const;
  // `with_id`: if this member may be the first of a rail.
  [[nodiscard]] base::Status publish(bool with_id);
  void end_comm();
  void tell_host(const std::string& why);  // why this generation stays on the host
  [[nodiscard]] bool learn();
  [[nodiscard]] base::Status reserve();
  [[nodiscard]] bool is_ready();
  [[nodiscard]] base::Status connect();

  const DeviceStream& stream_;
  Participant& self_;
  DataPlane& data_plane_;
  DevicePlane& plane_;
  const base::Duration limit_;
  std::optional<collective::nccl::Library> library_;
  std::vector<Ended> ended_;
  // Made by this member, and not used: no member of any World has begun to connect with it.
  std::optional<collective::nccl::UniqueId> spare_id_;
  // Of this World.
  Phase phase_ = Phase::kOff;
  std::optional<collective::nccl::Rails> rails_;
  std::optional<collective::nccl::UniqueId> id_;  // of this member's rail
  collective::cuda::DevicePointer bytes_ = 0;     // of the communicator
  std::unique_ptr<collective::nccl::Comm> comm_;  // until DevicePlane has it
  std::optional<Ended> own_;                      // of this communicator
  bool told_ = false;                             // that it stays on the host
};

}  // namespace regroup::elastic
