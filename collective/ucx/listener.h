// Listens for connections from members of other hosts: on one port for all addresses of the host
// or, where the user names interfaces, on one port for each of their addresses. One listener serves
// all generations of a process. UCX cannot destroy a listener safely while somebody connects
// (openucx/ucx#11087), so it stays as long as the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "collective/ucx/library.h"
#include "collective/ucx/peer_address.h"
#include "proto/world.h"

namespace regroup::collective::ucx {

// The client id of a connection request: 32 bits of the generation, then the rank in its World.
[[nodiscard]] constexpr std::uint64_t client_id_of(proto::Generation generation, std::size_t rank) {
  return static_cast<std::uint64_t>(generation) << 32 | (rank & 0xffffffff);
}

// Used by one thread, the one that uses the meshes. Nothing blocks.
class Listener {
 public:
  // More than the members that can be a generation ahead.
  static constexpr std::size_t kMaxEarly = 4096;
  struct ConnectionRequest {
    ucp_conn_request_h handle;  // must become an endpoint of a worker
    std::uint64_t client_id;    // 0 if the request has none
  };

  // `devices`, `ports`: as in UCX_NET_DEVICES and UCX_TCP_PORT_RANGE.
  [[nodiscard]] static base::Result<std::unique_ptr<Listener>> open(const Ucp& ucp,
                                                                    ucp_context_h context,
                                                                    std::string_view devices,
                                                                    std::string_view ports);
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // Where this process listens.
  [[nodiscard]] const std::vector<PeerAddress>& addresses() const { return addresses_; }
  // Receives connection requests; true if any are queued.
  bool progress();
  // Takes the requests of `generation` and of earlier ones. Requests of later generations stay
  // until the mesh of their generation takes them; of more than kMaxEarly of these, the oldest are
  // taken as well.
  [[nodiscard]] std::vector<ConnectionRequest> take(proto::Generation generation);
  // False: there is work for progress(). True: descriptor() becomes readable when there is.
  [[nodiscard]] bool arm();
  [[nodiscard]] int descriptor() const { return descriptor_; }

 private:
  explicit Listener(const Ucp& ucp) : ucp_(ucp) {}
  [[nodiscard]] base::Status listen(std::span<PeerAddress> addresses, PortRange ports,
                                    bool all_addresses);
  static void on_connection_request(ucp_conn_request_h request, void* self);

  const Ucp ucp_;
  ucp_worker_h worker_ = nullptr;
  int descriptor_ = -1;
  std::vector<PeerAddress> addresses_;
  std::vector<ConnectionRequest> requests_;
};

}  // namespace regroup::collective::ucx
