// Which sets an elastic job can spare: always the one whose loss leaves the fastest rings, and of equals one
// of the host that has fewest left, so that whole hosts become free.
#include <algorithm>
#include <map>
#include <utility>

#include "launcher/place/device_ranks.h"

namespace regroup::launcher {
namespace {

constexpr std::uint32_t kMostTried = 64;  // sets; of more, hosts are given up from the smallest on

using Left = std::map<std::uint32_t, std::map<std::uint32_t, GpuSet>>;  // by host, sets with their GPUs

std::vector<HostPart> parts_of(const Left& left, std::uint32_t but_host, std::uint32_t but_set) {
  std::vector<HostPart> out;
  for (const auto& [host, sets] : left) {
    HostPart part{host, 0, 0};
    for (const auto& [set, gpus] : sets) {
      if (host != but_host || set != but_set) part.gpus |= gpus;
    }
    part.free = part.gpus;
    if (part.gpus != 0) out.push_back(part);
  }
  return out;
}

std::pair<std::uint32_t, std::uint32_t> last_of_smallest(const Left& left) {
  const auto smallest = std::min_element(left.begin(), left.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.size(), ~a.first) < std::pair(b.second.size(), ~b.first);
  });
  return {smallest->first, smallest->second.rbegin()->first};
}

std::pair<std::uint32_t, std::uint32_t> cheapest(Judges& judges, const Left& left) {
  std::pair<std::uint32_t, std::uint32_t> out;
  Prediction best;
  std::size_t fewest = SIZE_MAX;
  for (const auto& [host, sets] : left) {
    for (const auto& [set, gpus] : sets) {
      const Prediction here = predict(judges, parts_of(left, host, set));
      const bool same = about_equal(here.gbytes, best.gbytes) && about_equal(here.outward, best.outward);
      const bool better =
          !about_equal(here.gbytes, best.gbytes) ? here.gbytes > best.gbytes : here.outward > best.outward;
      if (fewest != SIZE_MAX && !(same ? sets.size() <= fewest : better)) continue;
      best = here;
      fewest = sets.size();
      out = {host, set};
    }
  }
  return out;
}

}  // namespace

std::vector<std::uint32_t> give_up_order(Judges& judges, const std::vector<DeviceSpot>& ranks,
                                         std::uint32_t sets, std::uint32_t least) {
  Left left;
  for (const DeviceSpot& spot : ranks) {
    for (const std::uint32_t gpu : spot.gpus) left[spot.host][spot.set] |= bit_of(gpu);
  }
  std::vector<std::uint32_t> out;
  for (; sets > least; --sets) {
    const auto [host, set] = sets > kMostTried ? last_of_smallest(left) : cheapest(judges, left);
    out.push_back(set);
    left[host].erase(set);
    if (left[host].empty()) left.erase(host);
  }
  return out;
}

}  // namespace regroup::launcher
