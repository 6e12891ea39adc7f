// The GPUs of a job that its members do not use any more, since a check has failed.
// docs/design/health.md.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "proto/world.h"

namespace regroup::membership {

struct RefusedDevice {
  proto::NodeId node = 0;
  std::string gpu;             // its UUID
  proto::MemberId member = 0;  // the first that was refused with it
  // Members from this id on were started when the GPU was known as refused: elsewhere, if possible.
  proto::MemberId told_from = 0;
  std::uint32_t slots_lost = 0;  // of its node: one each time that such a member came with it
  std::string why;
  bool operator==(const RefusedDevice&) const = default;
};

// Plain data, which is journaled as a whole.
struct RefusedDevices {
  std::vector<RefusedDevice> all = {};

  // Null: it was not refused.
  [[nodiscard]] RefusedDevice* find(proto::NodeId node, const std::string& gpu) {
    const auto found = std::ranges::find_if(
        all, [&](const RefusedDevice& one) { return one.node == node && one.gpu == gpu; });
    return found == all.end() ? nullptr : &*found;
  }
  // UUIDs, of `node`.
  [[nodiscard]] std::vector<std::string> of(proto::NodeId node) const {
    std::vector<std::string> out;
    for (const RefusedDevice& one : all)
      if (one.node == node) out.push_back(one.gpu);
    return out;
  }
  [[nodiscard]] std::uint32_t slots_lost(proto::NodeId node) const {
    std::uint32_t sum = 0;
    for (const RefusedDevice& one : all)
      if (one.node == node) sum += one.slots_lost;
    return sum;
  }
  bool operator==(const RefusedDevices&) const = default;
};

}  // namespace regroup::membership
