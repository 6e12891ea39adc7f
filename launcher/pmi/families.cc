// A tie for each meeting: two programs that met twice part when they have parted twice.
#include "launcher/pmi/families.h"

#include <algorithm>

namespace regroup::pmi {

void Families::spawned(std::uint32_t parent, std::uint32_t child) {
  ties_.push_back({{parent, child}, true});
}

void Families::met(const std::set<std::uint32_t>& spaces) {
  if (spaces.size() < 2) return;
  const auto found = std::find_if(ties_.begin(), ties_.end(),
                                  [&](const Tie& tie) { return tie.by_spawn && tie.spaces == spaces; });
  if (found == ties_.end()) {
    ties_.push_back({spaces, false});
  } else {
    found->by_spawn = false;
  }
}

void Families::parted(const std::set<std::uint32_t>& spaces) {
  const auto found = std::find_if(ties_.begin(), ties_.end(), [&](const Tie& tie) {
    return std::includes(spaces.begin(), spaces.end(), tie.spaces.begin(), tie.spaces.end());
  });
  if (found != ties_.end()) ties_.erase(found);
}

void Families::closed(std::uint32_t space) {
  for (Tie& tie : ties_) tie.spaces.erase(space);
  std::erase_if(ties_, [](const Tie& tie) { return tie.spaces.size() < 2; });
}

std::set<std::uint32_t> Families::of(std::uint32_t space) const {
  std::set<std::uint32_t> family{space};
  for (std::size_t before = 0; before != family.size();) {
    before = family.size();
    for (const Tie& tie : ties_) {
      const bool joined = std::any_of(tie.spaces.begin(), tie.spaces.end(),
                                      [&](std::uint32_t one) { return family.contains(one); });
      if (joined) family.insert(tie.spaces.begin(), tie.spaces.end());
    }
  }
  return family;
}

}  // namespace regroup::pmi
