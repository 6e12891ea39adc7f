// Carries what regroup-pmi of one host says to those of others, through the head of the job.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "launcher/pmi/exchange.h"
#include "launcher/pmi/messages.h"
#include "launcher/supervise/node.h"

namespace regroup::launcher {

// Used by the loop's thread.
class HostExchange {
 public:
  using NodeOf = std::function<Node*(std::uint32_t host)>;                // none: there is no such host
  using HostOf = std::function<std::optional<std::uint32_t>(pmi::Seat)>;  // none: nobody has that seat
  HostExchange(NodeOf node_of, HostOf host_of);

  // Contribute, Fetch and Fetched; of a host that is not there, nothing.
  void pass(const pmi::Message& message);

 private:
  void tell(std::uint32_t host, const pmi::Message& message);

  const NodeOf node_of_;
  const HostOf host_of_;
  pmi::Exchange parts_;
};

}  // namespace regroup::launcher
