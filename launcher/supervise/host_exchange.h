// Carries what regroup-pmi of one host says to those of others, through the head of the job.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>

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

  // False: it is another host's to say. Of this one, the head's own, nothing is doubted.
  [[nodiscard]] bool may_say(std::uint32_t host, const pmi::Message& message) const;
  // Contribute, Fetch and Fetched that `host` may say; of a host that is not there, nothing.
  void pass(std::uint32_t host, const pmi::Message& message);

 private:
  void tell(std::uint32_t host, const pmi::Message& message);
  void fetch(const pmi::Fetch& fetch);

  const NodeOf node_of_;
  const HostOf host_of_;
  pmi::Exchange parts_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::uint32_t> asked_;  // by {who asked, request}: whom
};

}  // namespace regroup::launcher
