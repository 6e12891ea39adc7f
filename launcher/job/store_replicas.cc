// The replicas of ranges are looked up by walking over the stores, of which there are at most 64.
#include "launcher/job/store_replicas.h"

#include <algorithm>

namespace regroup::job {

std::vector<std::size_t> StoreReplicas::lost() const {
  std::vector<std::size_t> out;
  for (std::size_t store = 0; store < lost_.size(); ++store) {
    if (lost_[store]) out.push_back(store);
  }
  return out;
}

std::size_t StoreReplicas::living(std::size_t store) const {
  std::size_t out = 0;
  for (std::size_t i = 0; i < replicas_; ++i) out += lost_[(store + i) % lost_.size()] ? 0 : 1;
  return out;
}

std::vector<std::size_t> StoreReplicas::without_copy() const {
  std::vector<std::size_t> out;
  for (std::size_t store = 0; store < lost_.size(); ++store) {
    if (living(store) == 0) out.push_back(store);
  }
  return out;
}

std::vector<std::size_t> StoreReplicas::partners(std::size_t store) const {
  const std::size_t stores = lost_.size();
  std::vector<std::size_t> out;
  for (std::size_t other = 0; other < stores; ++other) {
    const std::size_t after = (other + stores - store) % stores;
    const bool near = after < replicas_ || stores - after < replicas_;
    if (other != store && near && !lost_[other]) out.push_back(other);
  }
  return out;
}

std::size_t StoreReplicas::spare() const {
  std::size_t out = 0;  // stores that live, but for store 0
  for (std::size_t store = 1; store < lost_.size(); ++store) out += lost_[store] ? 0 : 1;
  for (std::size_t store = 1; store + replicas_ <= lost_.size(); ++store) {  // those without 0
    const std::size_t left = living(store);
    out = std::min(out, left == 0 ? 0 : left - 1);
  }
  return out;
}

}  // namespace regroup::job
