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
#include "collective/local_communicator.h"
#include "collective/options.h"
#include "proto/world.h"
#include "regroup/communicator.h"
#include "shmem/arena.h"

namespace regroup::collective::ucx {

class UcxContext;
class PeerMesh;

struct UcxSettings {
  // UCX's variables without the prefix UCX_, such as {"TLS", "tcp"}. They override its environment.
  std::vector<std::pair<std::string, std::string>> config;
  // A rank that waits in an operation for 10 ms sends a straggler probe to the ranks that it is
  // connected to; after this interval, and then again and again, to all other ranks, to which it
  // connects.
  base::Duration probe_interval = std::chrono::milliseconds(300);
};

// How the members of one generation exchange their addresses, which are opaque bytes. The thread
// that uses the communicator calls all of them, and none may block.
struct Addresses {
  // Gives the address of this member to the others. A member that fails because the ranks disagree
  // publishes another address in place of the first, with the reason, for members that arrive late.
  std::function<base::Status(std::span<const std::byte>)> publish;
  // The address of another member, if it is known. The caller rings this member's doorbell when it
  // becomes known later.
  std::function<std::optional<std::vector<std::byte>>(proto::MemberId)> find;
  // The connection to a member broke while this one waits for it. Once per member. May be empty.
  std::function<void(proto::MemberId, const std::string& why)> on_peer_lost;
  // This member waits for another, from which nothing has come for a second. It may be computing,
  // or cut off: without `host_answers` its host does not acknowledge data either. Called again only
  // after a message came from it, or when its host stops answering. May be empty.
  std::function<void(proto::MemberId, bool host_answers, const std::string& why)> on_peer_silent;
};

// Loads libucp and opens a context: once per process, for all generations. Errors: kUnavailable,
// which names the missing Debian package. Takes 10 to 30 ms. Sets environment variables while it
// loads, and ignores SIGPIPE if its action is the default.
[[nodiscard]] base::Result<std::shared_ptr<const UcxContext>> open_ucx(
    const UcxSettings& settings = {});

// Opens the mesh of the member at `self` in the generation of `world`: publishes its address and
// starts a thread. Does not block. `arena` must outlive the mesh. Open the mesh of the next
// generation before this one is destroyed.
[[nodiscard]] base::Result<std::shared_ptr<PeerMesh>> open_peer_mesh(
    std::shared_ptr<const UcxContext> context, const shmem::Arena& arena, const proto::World& world,
    proto::SlotId self, Addresses addresses);

// Makes a communicator of members of any hosts on the mesh. `local`: those of this host, in the
// same order. Does not block. After one communicator has failed, all communicators of the mesh
// fail.
[[nodiscard]] base::Result<std::unique_ptr<Communicator>> make_ucx(
    std::shared_ptr<PeerMesh> mesh, std::unique_ptr<LocalCommunicator> local,
    const CommunicatorOptions& options = {});

}  // namespace regroup::collective::ucx
