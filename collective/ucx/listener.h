// Where members of other hosts call this process: a port on all addresses of the host, or, where the user
// names interfaces, one on each address of theirs; for all generations. A listener of UCX cannot be ended
// while somebody calls (openucx/ucx#11087), so these stay as long as the process does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "collective/ucx/library.h"
#include "collective/ucx/peer_address.h"
#include "core/status.h"
#include "core/world.h"

namespace regroup::collective {

// Who calls, as the one called knows it: 32 bits of the generation, the rank in its World.
[[nodiscard]] constexpr std::uint64_t client_id_of(core::Generation generation, std::size_t rank) {
  return static_cast<std::uint64_t>(generation) << 32 | (rank & 0xffffffff);
}

// Used by one thread, that of the meshes.
class Listener {
 public:
  static constexpr std::size_t kMaxEarly = 4096;  // more than there are members that can be ahead of this one
  struct ConnectionRequest {
    ucp_conn_request_h handle;  // to be answered
    std::uint64_t client_id;    // client_id_of() of it; 0 if it did not say
  };

  // `devices`, `ports`: as in UCX_NET_DEVICES and UCX_TCP_PORT_RANGE.
  [[nodiscard]] static core::Result<std::unique_ptr<Listener>> open(const Ucp& ucp, ucp_context_h context,
                                                                    std::string_view devices,
                                                                    std::string_view ports);
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // Where this process can be called.
  [[nodiscard]] const std::vector<PeerAddress>& addresses() const { return addresses_; }
  // Hears who calls; true if anybody does.
  bool progress();
  // Callers of `generation`, and those that nobody waits for any more. Later ones stay until their mesh asks,
  // but of more than kMaxEarly the first do not.
  [[nodiscard]] std::vector<ConnectionRequest> take(core::Generation generation);
  // False: there is something to hear. True: descriptor() becomes readable when there is.
  [[nodiscard]] bool arm();
  [[nodiscard]] int descriptor() const { return descriptor_; }

 private:
  explicit Listener(const Ucp& ucp) : ucp_(ucp) {}
  [[nodiscard]] core::Status listen(std::span<PeerAddress> addresses, PortRange ports, bool all_addresses);
  static void on_connection_request(ucp_conn_request_h request, void* self);

  const Ucp ucp_;
  ucp_worker_h worker_ = nullptr;
  int descriptor_ = -1;
  std::vector<PeerAddress> addresses_;
  std::vector<ConnectionRequest> requests_;
};

}  // namespace regroup::collective
