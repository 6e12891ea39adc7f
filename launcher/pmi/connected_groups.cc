// Reports are counted: spaces that connected twice are separated by the second disconnect.
#include "launcher/pmi/connected_groups.h"

#include <algorithm>
#include <iterator>

namespace regroup::pmi {

void ConnectedGroups::spawned(std::uint32_t parent, std::uint32_t child) {
  connections_.push_back({{parent, child}, {}, true});
}

void ConnectedGroups::connect(std::uint32_t host, const Spaces& spaces, const Spaces& own) {
  if (spaces.size() < 2) return;
  auto found =
      std::find_if(connections_.begin(), connections_.end(),
                   [&](const Connection& connection) { return connection.spaces == spaces; });
  const auto reported = std::count_if(
      connections_.begin(), connections_.end(),
      [host](const Connection& connection) { return connection.times.contains(host); });
  const bool again = found != connections_.end() && found->times.contains(host);
  if (!again && static_cast<std::size_t>(reported) >= most_) return;
  if (found == connections_.end()) found = connections_.insert(found, Connection{spaces, {}});
  ++found->times[host];
  std::set_intersection(spaces.begin(), spaces.end(), own.begin(), own.end(),
                        std::inserter(found->confirmed, found->confirmed.end()));
  if (found->confirmed == spaces) found->by_spawn = false;
}

void ConnectedGroups::disconnect(std::uint32_t host, const Spaces& spaces) {
  const auto find = [&](const auto& matches) {
    return std::find_if(connections_.begin(), connections_.end(),
                        [&](const Connection& connection) {
                          return matches(connection) &&
                                 std::includes(spaces.begin(), spaces.end(),
                                               connection.spaces.begin(), connection.spaces.end());
                        });
  };
  const auto found =
      find([host](const Connection& connection) { return connection.times.contains(host); });
  if (found == connections_.end()) {
    const auto spawned = find([](const Connection& connection) {
      return connection.by_spawn && connection.times.empty();
    });
    if (host == 0 && spawned != connections_.end()) connections_.erase(spawned);
    return;
  }
  if (--found->times[host] == 0) found->times.erase(host);
  if (found->times.empty() && !found->by_spawn) connections_.erase(found);
}

void ConnectedGroups::closed(std::uint32_t space) {
  for (Connection& connection : connections_) {
    connection.spaces.erase(space);
    connection.confirmed.erase(space);
  }
  std::erase_if(connections_,
                [](const Connection& connection) { return connection.spaces.size() < 2; });
}

ConnectedGroups::Spaces ConnectedGroups::group_of(std::uint32_t space) const {
  Spaces group{space};
  for (std::size_t before = 0; before != group.size();) {
    before = group.size();
    for (const Connection& connection : connections_) {
      const bool connected =
          connection.holds() && std::any_of(connection.spaces.begin(), connection.spaces.end(),
                                            [&](std::uint32_t one) { return group.contains(one); });
      if (connected) group.insert(connection.spaces.begin(), connection.spaces.end());
    }
  }
  return group;
}

}  // namespace regroup::pmi
