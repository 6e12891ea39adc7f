// Reads index0, index1, ...: a folder for each cache, with its level and its size ("32768K") as
// text.
#include "collective/shm/cache.h"

#include <fstream>

namespace regroup::collective::shm {

std::size_t last_level_cache(const std::string& folder) {
  std::size_t kib = 0;
  int highest = 0;
  for (int index = 0;; ++index) {
    const std::string cache = folder + "/index" + std::to_string(index);
    int level = 0;
    std::size_t size = 0;
    char unit = 0;
    if (!(std::ifstream(cache + "/level") >> level)) break;
    if (!(std::ifstream(cache + "/size") >> size >> unit) || unit != 'K' || level <= highest)
      continue;
    highest = level;
    kib = size;
  }
  return kib == 0 ? kAssumedCache : kib << 10;
}

StoreHint store_hint(Kind kind, bool in_place, bool bounced) {
  const bool sums =
      kind == Kind::kAllreduce || kind == Kind::kReduce || kind == Kind::kReduceScatter;
  if (in_place && (sums || kind == Kind::kAlltoall)) return StoreHint::kKept;
  if (from_root(kind)) return StoreHint::kCopied;
  return sums && !bounced ? StoreHint::kReduced : StoreHint::kReceived;
}

std::size_t footprint(Kind kind, bool in_place, std::size_t in, std::size_t out) {
  const bool within = kind == Kind::kBroadcast || (kind == Kind::kAllgather && in_place);
  return within ? out : in + out;
}

reduce::Stores stores_of(StoreHint what, std::size_t touched, std::size_t cache) {
  std::size_t eighths = 8;
  if (what == StoreHint::kReceived) eighths = 4;
  if (what == StoreHint::kReduced) eighths = 3;
  if (what == StoreHint::kCopied) eighths = 2;
  return touched >= cache / 8 * eighths ? reduce::Stores::kStream : reduce::Stores::kPlain;
}

}  // namespace regroup::collective::shm
