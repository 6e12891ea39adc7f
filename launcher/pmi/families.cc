// Programs that met twice part when they have parted twice.
#include "launcher/pmi/families.h"

#include <algorithm>
#include <iterator>

namespace regroup::pmi {

void Families::spawned(std::uint32_t parent, std::uint32_t child) {
  meetings_.push_back({{parent, child}, {}, true});
}

void Families::met(std::uint32_t host, const Spaces& spaces, const Spaces& own) {
  if (spaces.size() < 2) return;
  auto found = std::find_if(meetings_.begin(), meetings_.end(),
                            [&](const Meeting& meeting) { return meeting.spaces == spaces; });
  const auto told = std::count_if(meetings_.begin(), meetings_.end(),
                                  [host](const Meeting& meeting) { return meeting.times.contains(host); });
  const bool again = found != meetings_.end() && found->times.contains(host);
  if (!again && static_cast<std::size_t>(told) >= most_) return;
  if (found == meetings_.end()) found = meetings_.insert(found, Meeting{spaces, {}});
  ++found->times[host];
  std::set_intersection(spaces.begin(), spaces.end(), own.begin(), own.end(),
                        std::inserter(found->spoken_for, found->spoken_for.end()));
  if (found->spoken_for == spaces) found->by_spawn = false;
}

void Families::parted(std::uint32_t host, const Spaces& spaces) {
  const auto find = [&](const auto& told) {
    return std::find_if(meetings_.begin(), meetings_.end(), [&](const Meeting& meeting) {
      return told(meeting) &&
             std::includes(spaces.begin(), spaces.end(), meeting.spaces.begin(), meeting.spaces.end());
    });
  };
  const auto found = find([host](const Meeting& meeting) { return meeting.times.contains(host); });
  if (found == meetings_.end()) {
    const auto spawned =
        find([](const Meeting& meeting) { return meeting.by_spawn && meeting.times.empty(); });
    if (host == 0 && spawned != meetings_.end()) meetings_.erase(spawned);
    return;
  }
  if (--found->times[host] == 0) found->times.erase(host);
  if (found->times.empty() && !found->by_spawn) meetings_.erase(found);
}

void Families::closed(std::uint32_t space) {
  for (Meeting& meeting : meetings_) {
    meeting.spaces.erase(space);
    meeting.spoken_for.erase(space);
  }
  std::erase_if(meetings_, [](const Meeting& meeting) { return meeting.spaces.size() < 2; });
}

Families::Spaces Families::of(std::uint32_t space) const {
  Spaces family{space};
  for (std::size_t before = 0; before != family.size();) {
    before = family.size();
    for (const Meeting& meeting : meetings_) {
      const bool joined =
          meeting.joins() && std::any_of(meeting.spaces.begin(), meeting.spaces.end(),
                                         [&](std::uint32_t one) { return family.contains(one); });
      if (joined) family.insert(meeting.spaces.begin(), meeting.spaces.end());
    }
  }
  return family;
}

}  // namespace regroup::pmi
