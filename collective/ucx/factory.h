// The ucx backend, whole: communicators between nodes, over whatever network UCX knows. docs/design/ucx.md.
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

#include "collective/communicator.h"
#include "collective/shm/factory.h"
#include "core/arena.h"
#include "core/clock.h"
#include "core/world.h"

namespace regroup::collective {

class UcxContext;
class PeerMesh;

struct UcxSettings {
  // Of UCX, without the prefix UCX_: {"TLS", "tcp"}. They overrule its environment.
  std::vector<std::pair<std::string, std::string>> config;
  // A member that waits in an operation for 10 ms announces it to those that it is connected with; this much
  // later, and then at this interval, to all others, with whom it connects.
  core::Duration probe_interval = std::chrono::milliseconds(300);
};

// How members of one generation learn each other's addresses, which are opaque. Called by the thread that
// uses the communicator.
struct Addresses {
  // Gives ours to the others. Does not block. Once more, instead of what it gave, by who has failed since the
  // ranks disagree, for members that come late.
  std::function<core::Status(std::span<const std::byte>)> publish;
  // That of another member, if it has come. Does not block. Whoever makes it come later rings our bell.
  std::function<std::optional<std::vector<std::byte>>(core::MemberId)> find;
  // Once per member: its connection broke while we wait for it. May be empty.
  std::function<void(core::MemberId, const std::string& why)> on_peer_lost;
  // We wait for a member and have heard nothing of it for a second. It may compute, or be cut off: without
  // `host_answers` its host acknowledges nothing either. Again only after it was heard, or when its host
  // stops answering. May be empty.
  std::function<void(core::MemberId, bool host_answers, const std::string& why)> on_peer_silent;
};

// Loads libucp and opens a context: once per process, for all generations. kUnavailable says which Debian
// package is missing. Sets variables of the environment while it loads, and ignores SIGPIPE if nobody handles
// it. 10 to 30 ms.
[[nodiscard]] core::Result<std::shared_ptr<const UcxContext>> open_ucx(const UcxSettings& settings = {});

// Opens the line of the member at `self` in the generation of `world`: publishes its address, starts a
// thread. `arena` outlives it. Open the next generation's before this one is destroyed.
[[nodiscard]] core::Result<std::shared_ptr<PeerMesh>> open_peer_mesh(
    std::shared_ptr<const UcxContext> context, const core::Arena& arena, const core::World& world,
    core::Seat self, Addresses addresses);

// A communicator on the mesh, of members of any node; options as for make_shm(). Blocks nobody. After a
// failure of one, all on the mesh fail.
[[nodiscard]] core::Result<std::unique_ptr<Communicator>> make_ucx(std::shared_ptr<PeerMesh> mesh,
                                                                   const ShmOptions& options = {});

}  // namespace regroup::collective
