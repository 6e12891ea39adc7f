// What hosts bring to something that their processes do together, put together at the head of the job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/pmi/messages.h"

namespace regroup::pmi {

class Exchange {
 public:
  // The answer to all of `part.hosts`, once the last of them has brought its part. What does not belong, a
  // second part of a host for example, is left out.
  [[nodiscard]] std::optional<Gathered> add(const Contribute& part);

 private:
  struct Parts {
    std::vector<std::uint32_t> hosts;
    std::map<std::uint32_t, std::vector<std::byte>> by_host;
  };
  std::map<std::string, Parts> open_;  // by key
};

}  // namespace regroup::pmi
