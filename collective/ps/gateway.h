// Where clients on other hosts connect: makes their calls on the servers' host, by lanes and stores
// as the processes of this host do. It belongs to the agent, which owns the memory: a gateway that
// could die alone would leave pushes of which nobody knows whether they are in a lane.
// docs/design/ps_hosts.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/fd.h"
#include "base/status.h"
#include "collective/ps/handover.h"
#include "collective/ps/link.h"

namespace regroup::collective::ps {

struct GatewayOptions {
  ServerMemory memory;  // its descriptors must stay open as long as the gateway lives
  base::Fd listener;    // a listening TCP socket
  LinkToken token{};
  // The number of the next client. Any thread.
  std::function<std::uint64_t()> next_client;
};

// A thread that accepts connections, and two for each client. All of them block all signals.
class Gateway {
 public:
  // Connections that have not shown the token yet; the oldest is closed for another one.
  static constexpr std::size_t kMostStrangers = 32;
  // Maps the memory. Errors as Client::attach().
  [[nodiscard]] static base::Result<std::unique_ptr<Gateway>> start(GatewayOptions options);
  // Closes all connections. Blocks until calls that wait have noticed, about 100 ms.
  ~Gateway();
  Gateway(const Gateway&) = delete;
  Gateway& operator=(const Gateway&) = delete;

 private:
  class Impl;
  explicit Gateway(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace regroup::collective::ps
