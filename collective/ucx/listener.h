// Listens for connections from members of other hosts: on one port for all addresses of the host
// or, if the user names interfaces, on one port for each of their addresses. One listener serves
// all generations of a process. UCX cannot destroy a listener safely while a peer connects
// (openucx/ucx#11087), so the listener lives as long as the process.
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

// Used by the thread that uses the meshes. Nothing blocks.
class Listener {
 public:
  // Greatest number of queued requests of later generations; more than a World has members ahead.
  static constexpr std::size_t kMaxEarly = 4096;
  struct ConnectionRequest {
    ucp_conn_request_h handle;  // must become an endpoint of a worker
    std::uint64_t client_id;    // client_id_of(), or 0 if the request has none
  };

  // `devices`, `ports`: as in UCX_NET_DEVICES and UCX_TCP_PORT_RANGE.
  [[nodiscard]] static base::Result<std::unique_ptr<Listener>> open(const Ucp& ucp,
                                                                    ucp_context_h context,
                                                                    std::string_view devices,
                                                                    std::string_view ports);
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // The addresses on which this process listens.
  [[nodiscard]] const std::vector<PeerAddress>& addresses() const { return addresses_; }
  // Receives connection requests; true if any are queued.
  bool progress();
  // Removes and returns the requests of `generation` and of earlier ones. Requests of later
  // generations stay queued for the mesh of their generation; if there are more than kMaxEarly, the
  // oldest of them are returned too.
  [[nodiscard]] std::vector<ConnectionRequest> take(proto::Generation generation);
  // Call before sleeping. False: progress() has work to do. True: descriptor() will become readable
  // when it has.
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
