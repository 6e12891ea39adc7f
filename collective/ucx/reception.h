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

#include "collective/ucx/contact.h"
#include "collective/ucx/library.h"
#include "core/status.h"
#include "core/world.h"

namespace regroup::collective {

// Who calls, as the one called knows it: 32 bits of the generation, the rank in its World.
[[nodiscard]] constexpr std::uint64_t caller_id(core::Generation generation, std::size_t rank) {
  return static_cast<std::uint64_t>(generation) << 32 | (rank & 0xffffffff);
}

// Used by one thread, that of the wires.
class Reception {
 public:
  static constexpr std::size_t kLater = 4096;  // more than there are members that can be ahead of this one
  struct Caller {
    ucp_conn_request_h request;  // to be answered
    std::uint64_t id;            // caller_id() of it; 0 if it did not say
  };

  // `devices`, `ports`: as in UCX_NET_DEVICES and UCX_TCP_PORT_RANGE.
  [[nodiscard]] static core::Result<std::unique_ptr<Reception>> open(const Ucp& ucp, ucp_context_h context,
                                                                     std::string_view devices,
                                                                     std::string_view ports);
  Reception(const Reception&) = delete;
  Reception& operator=(const Reception&) = delete;

  // Where this process can be called.
  [[nodiscard]] const std::vector<Contact>& contacts() const { return contacts_; }
  // Hears who calls; true if anybody does.
  bool progress();
  // Callers of `generation`, and those that nobody waits for any more. Later ones stay until their wire asks,
  // but of more than kLater the first do not.
  [[nodiscard]] std::vector<Caller> take(core::Generation generation);
  // False: there is something to hear. True: descriptor() becomes readable when there is.
  [[nodiscard]] bool arm();
  [[nodiscard]] int descriptor() const { return descriptor_; }

 private:
  explicit Reception(const Ucp& ucp) : ucp_(ucp) {}
  [[nodiscard]] core::Status listen(std::span<Contact> contacts, PortRange ports, bool all_addresses);
  static void on_call(ucp_conn_request_h request, void* self);

  const Ucp ucp_;
  ucp_worker_h worker_ = nullptr;
  int descriptor_ = -1;
  std::vector<Contact> contacts_;
  std::vector<Caller> callers_;
};

}  // namespace regroup::collective
