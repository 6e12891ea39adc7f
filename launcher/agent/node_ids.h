// The node ids of a job's hosts: a host has one at a time, and each start of an agent on it gets a
// new one, so that messages of a former agent are recognised.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "launcher/agent/tree.h"
#include "proto/world.h"

namespace regroup::agent {

// Plain data, one thread. Hosts are numbered from 0 without gaps; ids are given out from 1 on, and
// never twice.
class NodeIds {
 public:
  // A new id for host `host`, which is one that has an id or the next one.
  proto::NodeId assign(std::size_t host) {
    host_of_.push_back(host);
    const auto id = static_cast<proto::NodeId>(host_of_.size());
    if (host == current_.size()) current_.push_back(id);
    return current_.at(host) = id;
  }
  // The id of a host that has one.
  [[nodiscard]] proto::NodeId id(std::size_t host) const { return current_.at(host); }
  // The host that has this id now; empty for a former id, an unknown one, or the controller.
  [[nodiscard]] std::optional<std::size_t> host_of(proto::NodeId node) const {
    if (node == kController || node > host_of_.size()) return std::nullopt;
    const std::size_t host = host_of_[node - 1];
    return current_[host] == node ? std::optional(host) : std::nullopt;
  }

 private:
  std::vector<std::size_t> host_of_;    // by node id - 1, former ids included
  std::vector<proto::NodeId> current_;  // by host
};

}  // namespace regroup::agent
