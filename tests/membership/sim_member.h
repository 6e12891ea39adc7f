// A member of a simulated job, and what can be asked of such a job.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "membership/membership.h"
#include "proto/message.h"
#include "proto/world.h"

namespace regroup::membership {

struct SimMember {
  proto::Start start;
  proto::NodeId node = 0;
  bool alive = true;
  bool hangs = false;  // does nothing, for ever
  bool asked = false;  // sent its Join
  std::optional<proto::SlotIndex> slot;
  bool ready = false;
  bool drained = false;
  std::string refused;
  proto::World world;  // it has entered
  proto::Generation seen = 0;
  bool settled = false;             // has, or has given, the state in this world
  proto::Generation addresses = 0;  // in which it told how it is reached ...
  std::size_t known = 0;            // ... and knows that of so many
  proto::Step applied = 0;
  bool learning = false;       // has the state of a state transfer
  bool torn = false;           // has that of none
  std::uint64_t transfer = 0;  // as last taken from its slot
};

struct SimOptions {
  Policy policy{.min = 2, .max = 4, .target = 3, .slots = 4, .shards = 8};
  std::uint32_t arena_slots = 6;
  std::vector<std::uint32_t> hosts;  // slots of each; empty: one host, unknown to the coordinator
  proto::Step steps = 6;
  std::set<proto::MemberId> never_join;                 // plain programs
  std::map<proto::MemberId, std::string> models;        // others have "m"
  std::map<proto::MemberId, std::string> fingerprints;  // others have "f"
  bool any_fingerprint = false;
  std::string resumed_fingerprint;  // of the checkpoint that the job goes on from
};

}  // namespace regroup::membership
