// A worker that does nothing but listen. Its callers become endpoints of the workers of their generations.
#include "collective/ucx/reception.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

namespace regroup::collective {

using core::Code;
using core::Result;
using core::Status;

Result<std::unique_ptr<Reception>> Reception::open(const Ucp& ucp, ucp_context_h context) {
  std::unique_ptr<Reception> out(new Reception(ucp));
  const auto failed = [&](const char* call, ucs_status_t status) {
    return Status(Code::kUnavailable, fmt::format("{}: {}", call, ucp.ucs_status_string(status)));
  };
  out->contacts_ = contacts_here(0);
  if (out->contacts_.empty()) return Status(Code::kUnavailable, "getifaddrs: this host has no address");
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SINGLE;
  ucs_status_t status = ucp.ucp_worker_create(context, &params, &out->worker_);
  if (status != UCS_OK) return failed("ucp_worker_create", status);
  status = ucp.ucp_worker_get_efd(out->worker_, &out->descriptor_);
  if (status != UCS_OK) return failed("ucp_worker_get_efd", status);
  const char* call = nullptr;
  status = out->listen(&call);
  if (status != UCS_OK) return failed(call, status);
  return out;
}

ucs_status_t Reception::listen(const char** call) {
  const SocketAddress any = any_address(contacts_[0].family);
  ucp_listener_params_t params{};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr = {reinterpret_cast<const sockaddr*>(&any.storage), any.bytes};
  params.conn_handler = {on_call, this};
  *call = "ucp_listener_create";
  ucs_status_t status = ucp_.ucp_listener_create(worker_, &params, &listener_);
  if (status != UCS_OK) return status;
  ucp_listener_attr_t attributes{};
  attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  *call = "ucp_listener_query";
  status = ucp_.ucp_listener_query(listener_, &attributes);
  const auto port = reinterpret_cast<const sockaddr_in&>(attributes.sockaddr).sin_port;  // as in sockaddr_in6
  for (Contact& contact : contacts_) contact.port = ntohs(port);
  return status;
}

void Reception::on_call(ucp_conn_request_h request, void* self) {
  Reception& reception = *static_cast<Reception*>(self);
  ucp_conn_request_attr_t attributes{};
  attributes.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ID;
  const bool known = reception.ucp_.ucp_conn_request_query(request, &attributes) == UCS_OK;
  reception.callers_.push_back({request, known ? attributes.client_id : 0});
}

bool Reception::progress() {
  while (ucp_.ucp_worker_progress(worker_) != 0) {
  }
  return !callers_.empty();
}

std::vector<Reception::Caller> Reception::take(core::Generation generation) {
  const auto is_later = [&](const Caller& c) { return c.id >= caller_id(generation + 1, 0); };
  const auto first = std::stable_partition(callers_.begin(), callers_.end(), std::not_fn(is_later));
  const auto later = static_cast<std::size_t>(callers_.end() - first);
  const auto end = first + static_cast<std::ptrdiff_t>(later > kLater ? later - kLater : 0);
  std::vector<Caller> out(callers_.begin(), end);
  callers_.erase(callers_.begin(), end);
  return out;
}

bool Reception::arm() { return ucp_.ucp_worker_arm(worker_) == UCS_OK; }

}  // namespace regroup::collective
