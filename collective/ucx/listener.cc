// A UCX worker that only listens. Connection requests become endpoints of the workers of their
// generations.
#include "collective/ucx/listener.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <utility>

namespace regroup::collective::ucx {

using base::Result;
using base::Status;

Result<std::unique_ptr<Listener>> Listener::open(const Ucp& ucp, ucp_context_h context,
                                                 std::string_view devices, std::string_view ports) {
  std::unique_ptr<Listener> out(new Listener(ucp));
  const auto failed = [&](const char* call, ucs_status_t status) {
    return base::unavailable(fmt::format("{}: {}", call, ucp.ucs_status_string(status)));
  };
  REGROUP_ASSIGN_OR_RETURN(const auto range, read_port_range(ports));
  out->addresses_ = addresses_of_devices(devices);
  const bool named = !out->addresses_.empty();
  if (!named) out->addresses_ = local_addresses();
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SINGLE;
  ucs_status_t status = ucp.ucp_worker_create(context, &params, &out->worker_);
  if (status != UCS_OK) return failed("ucp_worker_create", status);
  status = ucp.ucp_worker_get_efd(out->worker_, &out->descriptor_);
  if (status != UCS_OK) return failed("ucp_worker_get_efd", status);
  const std::span<PeerAddress> addresses(out->addresses_);
  if (!named) REGROUP_RETURN_IF_ERROR(out->listen(addresses, range, true));
  for (std::size_t i = 0; named && i < addresses.size(); ++i)
    REGROUP_RETURN_IF_ERROR(out->listen(addresses.subspan(i, 1), range, false));
  return out;
}

// Members of one host start at different ports of the range, so that few of them collide.
Status Listener::listen(std::span<PeerAddress> addresses, PortRange ports, bool all_addresses) {
  PeerAddress at = addresses.front();
  if (all_addresses) at.address = {};
  ucp_listener_params_t params{};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.conn_handler = {on_connection_request, this};
  ucp_listener_h listener = nullptr;
  ucs_status_t status = UCS_ERR_BUSY;
  const int count = ports.last - ports.first + 1;
  for (int tried = 0; tried < count && status == UCS_ERR_BUSY; ++tried) {
    at.port = static_cast<std::uint16_t>(ports.first + (::getpid() + tried) % count);
    const SocketAddress address = to_socket_address(at);
    params.sockaddr = {reinterpret_cast<const sockaddr*>(&address.storage), address.bytes};
    status = ucp_.ucp_listener_create(worker_, &params, &listener);
  }
  ucp_listener_attr_t attributes{};
  attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  if (status == UCS_OK) status = ucp_.ucp_listener_query(listener, &attributes);
  if (status != UCS_OK) {
    const std::string where = ports.first == 0 ? "any port"
                                               : fmt::format("ports {}-{} of UCX_TCP_PORT_RANGE",
                                                             ports.first, ports.last);
    return base::unavailable(
        fmt::format("ucp_listener_create({}): {}", where, ucp_.ucs_status_string(status)));
  }
  // As in sockaddr_in6.
  const auto port = reinterpret_cast<const sockaddr_in&>(attributes.sockaddr).sin_port;
  for (PeerAddress& address : addresses) address.port = ntohs(port);
  return {};
}

void Listener::on_connection_request(ucp_conn_request_h request, void* self) {
  Listener& listener = *static_cast<Listener*>(self);
  ucp_conn_request_attr_t attributes{};
  attributes.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ID;
  const bool known = listener.ucp_.ucp_conn_request_query(request, &attributes) == UCS_OK;
  listener.requests_.push_back({request, known ? attributes.client_id : 0});
}

bool Listener::progress() {
  while (ucp_.ucp_worker_progress(worker_) != 0) {
  }
  return !requests_.empty();
}

std::vector<Listener::ConnectionRequest> Listener::take(proto::Generation generation) {
  const auto is_later = [&](const ConnectionRequest& r) {
    return r.client_id >= client_id_of(generation + 1, 0);
  };
  const auto first =
      std::stable_partition(requests_.begin(), requests_.end(), std::not_fn(is_later));
  const auto later = static_cast<std::size_t>(requests_.end() - first);
  const auto end = first + static_cast<std::ptrdiff_t>(later > kMaxEarly ? later - kMaxEarly : 0);
  std::vector<ConnectionRequest> out(requests_.begin(), end);
  requests_.erase(requests_.begin(), end);
  return out;
}

bool Listener::arm() { return ucp_.ucp_worker_arm(worker_) == UCS_OK; }

}  // namespace regroup::collective::ucx
