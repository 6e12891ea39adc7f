// The ucx backend: communicators between hosts, over any network that UCX supports.
// docs/design/ucx.md.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "collective/carrier.h"
#include "collective/local_communicator.h"
#include "collective/options.h"
#include "proto/world.h"
#include "regroup/communicator.h"
#include "shmem/arena.h"

namespace regroup::collective::ucx {

class UcxContext;
class PeerMesh;

struct UcxSettings {
  // UCX variables without the prefix UCX_, such as {"TLS", "tcp"}. They override the environment.
  std::vector<std::pair<std::string, std::string>> config;
  // A rank that has waited in an operation for 10 ms sends a straggler probe to the ranks to which
  // it is connected; then, once per interval, it connects to all ranks and probes them.
  base::Duration probe_interval = std::chrono::milliseconds(300);
};

// Callbacks by which the members of one generation exchange their addresses (opaque bytes) and
// report failures of peers. The thread that uses the communicator calls them; none may block.
struct Addresses {
  // Publishes the address of this member. A member that fails because the ranks disagree calls it
  // again, with an address that has the reason, for members that arrive late.
  std::function<base::Status(std::span<const std::byte>)> publish;
  // Returns the address of another member, if known. If it becomes known later, the implementation
  // rings this member's doorbell.
  std::function<std::optional<std::vector<std::byte>>(proto::MemberId)> find;
  // Called once per member: the connection to it broke while this member waits for it. May be
  // empty.
  std::function<void(proto::MemberId, const std::string& why)> on_peer_lost;
  // Called when this member has waited for another for a second without a message from it. The
  // other may be computing or cut off; if `host_answers` is false, its host does not acknowledge
  // data either. Called again only after a message has arrived, or when the host stops answering.
  // May be empty.
  std::function<void(proto::MemberId, bool host_answers, const std::string& why)> on_peer_silent;
};

// Why no member of this build can use ucx, as a part of a sentence; "" if it may. Does not load
// libucp, so only open_ucx() finds it missing.
[[nodiscard]] std::string why_not_viable();

// Loads libucp and opens a context; call once per process, for all generations. Takes 10 to 30 ms.
// kUnavailable names the missing Debian package. Sets environment variables while loading, and
// ignores SIGPIPE if its action is the default.
[[nodiscard]] base::Result<std::shared_ptr<const UcxContext>> open_ucx(
    const UcxSettings& settings = {});

// Opens the mesh of the member at `self` in the generation of `world`: publishes its address and
// starts a thread. Does not block. `arena` must outlive the mesh. Open the mesh of the next
// generation before this one is destroyed.
[[nodiscard]] base::Result<std::shared_ptr<PeerMesh>> open_peer_mesh(
    std::shared_ptr<const UcxContext> context, const shmem::Arena& arena, const proto::World& world,
    proto::SlotId self, Addresses addresses);

// From now on `carrier` takes messages of the mesh in place of UCX, when it can.
void attach_carrier(PeerMesh& mesh, std::unique_ptr<Carrier> carrier);

// Makes a communicator of members of any hosts on the mesh. `local`: a communicator of those on
// this host, in the same order. Does not block. When one communicator of the mesh fails, all fail.
[[nodiscard]] base::Result<std::unique_ptr<Communicator>> make_ucx(
    std::shared_ptr<PeerMesh> mesh, std::unique_ptr<LocalCommunicator> local,
    const CommunicatorOptions& options = {});

}  // namespace regroup::collective::ucx
