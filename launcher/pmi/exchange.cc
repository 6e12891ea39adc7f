// Parts are kept until the last one has arrived, without a timeout: MPI sets none for a fence.
#include "launcher/pmi/exchange.h"

#include <algorithm>

namespace regroup::pmi {
namespace {

constexpr std::size_t kEntry = 512;  // of two maps

bool contains(const std::vector<std::uint32_t>& hosts, std::uint32_t host) {
  return std::find(hosts.begin(), hosts.end(), host) != hosts.end();
}

}  // namespace

// Counts the name for every part, because any of them may be the first.
std::size_t Exchange::cost(const Name& name, const std::vector<std::byte>& data) {
  return kEntry + name.first.size() + name.second.size() * sizeof(std::uint32_t) + data.size();
}

void Exchange::give_back(const Name& name, const Parts& parts) {
  for (const auto& [host, data] : parts) {
    const auto held = held_.find(host);
    held->second -= cost(name, data);
    if (held->second == 0) held_.erase(held);
  }
}

std::optional<Gathered> Exchange::add(const Contribute& part) {
  if (!contains(part.hosts, part.host)) return std::nullopt;
  const auto entry = open_.try_emplace({part.key, part.hosts}).first;
  const auto& [name, parts] = *entry;
  if (!entry->second.emplace(part.host, part.data).second) return std::nullopt;
  held_[part.host] += cost(name, part.data);
  if (parts.size() < part.hosts.size()) return std::nullopt;
  Gathered gathered{part.key, {}};
  for (const std::uint32_t host : part.hosts) {
    const std::vector<std::byte>& data = parts.at(host);
    gathered.data.insert(gathered.data.end(), data.begin(), data.end());
  }
  give_back(name, parts);
  open_.erase(entry);
  return gathered;
}

std::size_t Exchange::held(std::uint32_t host) const {
  const auto found = held_.find(host);
  return found == held_.end() ? 0 : found->second;
}

Exchange::Size Exchange::size_with(const Contribute& part) const {
  Size size{part.data.size(), part.data.size(), part.host};
  const auto entry = open_.find({part.key, part.hosts});
  if (entry == open_.end()) return size;
  for (const auto& [host, data] : entry->second) {
    if (host == part.host) continue;
    size.bytes += data.size();
    if (data.size() > size.largest) size.largest = data.size(), size.host = host;
  }
  return size;
}

bool Exchange::awaited(std::uint32_t host) const {
  return std::any_of(open_.begin(), open_.end(), [host](const auto& entry) {
    return !entry.second.contains(host) && contains(entry.first.second, host);
  });
}

void Exchange::forget(std::uint32_t host) {
  for (auto& [name, parts] : open_) {
    const auto part = parts.find(host);
    if (part == parts.end()) continue;
    give_back(name, {*part});
    parts.erase(part);
  }
  std::erase_if(open_, [](const auto& entry) { return entry.second.empty(); });
}

}  // namespace regroup::pmi
