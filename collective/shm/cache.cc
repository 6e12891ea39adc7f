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

Stores stores_of(Kind kind, std::size_t bytes, std::size_t read, std::size_t cache) {
  const bool is_much = from_root(kind) ? bytes >= cache / 2 : bytes > cache / 2;
  return is_much || bytes + read >= cache ? Stores::kStream : Stores::kPlain;
}

}  // namespace regroup::collective
