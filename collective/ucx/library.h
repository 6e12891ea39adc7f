// libucp, loaded at run time, so that programs start on hosts without it. All UCX calls of this
// folder go through the table Ucp.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "collective/ucx/factory.h"

namespace regroup::collective::ucx {

class Listener;

#define REGROUP_UCP_FUNCTIONS(X)    \
  X(ucp_config_read)                \
  X(ucp_config_modify)              \
  X(ucp_config_release)             \
  X(ucp_init_version)               \
  X(ucp_worker_create)              \
  X(ucp_worker_destroy)             \
  X(ucp_listener_create)            \
  X(ucp_listener_query)             \
  X(ucp_conn_request_query)         \
  X(ucp_worker_get_efd)             \
  X(ucp_worker_progress)            \
  X(ucp_worker_arm)                 \
  X(ucp_worker_signal)              \
  X(ucp_worker_set_am_recv_handler) \
  X(ucp_ep_create)                  \
  X(ucp_ep_close_nbx)               \
  X(ucp_am_send_nbx)                \
  X(ucp_am_recv_data_nbx)           \
  X(ucp_am_data_release)            \
  X(ucp_request_check_status)       \
  X(ucp_request_free)               \
  X(ucs_status_string)

struct Ucp {
#define REGROUP_UCP_DECLARE(name) \
  decltype(&::name) name = nullptr;  // NOLINT(bugprone-macro-parentheses): a declared name
  REGROUP_UCP_FUNCTIONS(REGROUP_UCP_DECLARE)
#undef REGROUP_UCP_DECLARE
};

// Loads the library for the lifetime of the process. kUnavailable: "not viable: no libucp; ...".
// Any thread. Only the first call loads, and sets environment variables meanwhile, when no thread
// may read the environment except by this function. Later calls return what the first one did.
[[nodiscard]] base::Result<Ucp> load_ucp();

// A UCX context, with the devices and transports of this process, and the listener. The workers of
// successive generations share it. Its UCX resources live as long as the process: see Listener.
class UcxContext {
 public:
  [[nodiscard]] static base::Result<std::shared_ptr<const UcxContext>> open(
      const UcxSettings& settings);
  UcxContext(const Ucp& ucp, ucp_context_h handle, std::unique_ptr<Listener> listener,
             base::Duration probe_interval);
  ~UcxContext();
  UcxContext(const UcxContext&) = delete;
  UcxContext& operator=(const UcxContext&) = delete;

  [[nodiscard]] const Ucp& ucp() const { return ucp_; }
  [[nodiscard]] ucp_context_h handle() const { return handle_; }
  [[nodiscard]] Listener& listener() const { return *listener_; }
  [[nodiscard]] base::Duration probe_interval() const { return probe_interval_; }

 private:
  const Ucp ucp_;
  const ucp_context_h handle_;
  std::unique_ptr<Listener> listener_;
  const base::Duration probe_interval_;
};

}  // namespace regroup::collective::ucx
