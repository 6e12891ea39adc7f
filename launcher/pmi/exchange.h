// What hosts bring to something that their processes do together, put together at the controller of the job.
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
  // The answer to all of `part.hosts`, once the last of them has brought its part. What does not belong, a
  // second part of a host for example, is left out. Who names other hosts under the same key speaks of
  // something else: nobody decides for others who takes part.
  [[nodiscard]] std::optional<Gathered> add(const Contribute& part);
  // Bytes that parts of `host` cost for as long as somebody is missing.
  [[nodiscard]] std::size_t held(std::uint32_t host) const;
  // The bytes of all parts that are there of what `part` belongs to, and whose is the largest.
  struct Size {
    std::size_t bytes = 0, largest = 0;
    std::uint32_t host = 0;
  };
  [[nodiscard]] Size size_with(const Contribute& part) const;
  // Of something that `host` takes part in and others have come to, and it has not; after forget().
  [[nodiscard]] bool awaited(std::uint32_t host) const;
  // Its parts are gone, as if they had never come.
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
