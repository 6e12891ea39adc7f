// Kept from the first part until the last: who waits, waits as long as its peers take.
#include "launcher/pmi/exchange.h"

#include <algorithm>

namespace regroup::pmi {

std::optional<Gathered> Exchange::add(const Contribute& part) {
  Parts& parts = open_.try_emplace(part.key, Parts{part.hosts, {}}).first->second;
  if (std::find(parts.hosts.begin(), parts.hosts.end(), part.host) == parts.hosts.end()) return std::nullopt;
  parts.by_host.emplace(part.host, part.data);
  if (parts.by_host.size() < parts.hosts.size()) return std::nullopt;
  Gathered gathered{part.key, {}};
  for (const std::uint32_t host : parts.hosts) {
    const std::vector<std::byte>& data = parts.by_host.at(host);
    gathered.data.insert(gathered.data.end(), data.begin(), data.end());
  }
  open_.erase(part.key);
  return gathered;
}

}  // namespace regroup::pmi
