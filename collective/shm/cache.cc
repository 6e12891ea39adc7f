// Reads index0, index1, ...: a folder for each cache, with its level and its size ("32768K") as text.
#include "collective/shm/cache.h"

#include <fstream>

namespace regroup::collective {

std::size_t last_level_cache(const std::string& folder) {
  std::size_t kib = 0;
  int highest = 0;
  for (int index = 0;; ++index) {
    const std::string cache = folder + "/index" + std::to_string(index);
    int level = 0;
    std::size_t size = 0;
    char unit = 0;
    if (!(std::ifstream(cache + "/level") >> level)) break;
    if (!(std::ifstream(cache + "/size") >> size >> unit) || unit != 'K' || level <= highest) continue;
    highest = level;
    kib = size;
  }
  return kib == 0 ? kAssumedCache : kib << 10;
}

Stores stores_of(Written what, std::size_t footprint, std::size_t cache) {
  constexpr std::size_t kEighths[] = {4, 3, 2, 8};
  return footprint >= cache / 8 * kEighths[static_cast<std::size_t>(what)] ? Stores::kStream : Stores::kPlain;
}

}  // namespace regroup::collective
