// Gathers the contributions of hosts to PMIx operations that span hosts (fence, connect), at the
// controller of the job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/pmi/messages.h"

namespace regroup::pmi {

class Exchange {
 public:
  // Returns the reply to all of `part.hosts` once the last of them has contributed. Drops invalid
  // parts, such as a second part of a host. An operation is identified by its key and
  // its hosts: a host that names other hosts under the same key begins another operation, so that
  // no host can decide which hosts take part in the operation of others.
  [[nodiscard]] std::optional<Gathered> add(const Contribute& part);
  // Bytes that parts of `host` occupy in operations that still lack a part.
  [[nodiscard]] std::size_t held(std::uint32_t host) const;
  // Bytes of all parts received for the operation of `part`, that one included, and the host of the
  // largest.
  struct Size {
    std::size_t bytes = 0;
    std::size_t largest = 0;
    std::uint32_t host = 0;
  };
  [[nodiscard]] Size size_with(const Contribute& part) const;
  // True: an operation with parts of other hosts still lacks the part of `host`. For use after
  // forget().
  [[nodiscard]] bool awaited(std::uint32_t host) const;
  // Drops all parts of `host`.
  void forget(std::uint32_t host);

 private:
  using Name = std::pair<std::string, std::vector<std::uint32_t>>;  // key, hosts
  using Parts = std::map<std::uint32_t, std::vector<std::byte>>;    // by host
  [[nodiscard]] static std::size_t cost(const Name& name, const std::vector<std::byte>& data);
  void give_back(const Name& name, const Parts& parts);

  std::map<Name, Parts> open_;
  std::map<std::uint32_t, std::size_t> held_;  // by host
};

}  // namespace regroup::pmi
