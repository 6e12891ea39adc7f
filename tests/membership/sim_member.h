// A member of a simulated job, and the options of such a job.
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
  bool hangs = false;  // makes no more moves
  bool asked = false;  // has sent its Join
  std::optional<proto::SlotIndex> slot;
  bool ready = false;
  bool drained = false;
  std::string refused;
  proto::World world;  // the World that it has entered
  proto::Generation seen = 0;
  bool settled = false;             // has received or donated the state in this World
  proto::Generation addresses = 0;  // the generation in which it last sent its address
  std::size_t known = 0;            // the number of addresses that it knows in it
  proto::Step applied = 0;
  bool learning = false;       // has the state of a state transfer
  bool torn = false;           // its state is incomplete
  std::uint64_t transfer = 0;  // the number last read from its slot
};

struct SimOptions {
  Policy policy{.min = 2, .max = 4, .target = 3, .slots = 4, .shards = 8};
  std::uint32_t arena_slots = 6;
  std::vector<std::uint32_t> hosts;  // slots of each; empty: one host, unknown to the coordinator
  proto::Step steps = 6;
  std::set<proto::MemberId> never_join;                    // plain programs
  std::map<proto::MemberId, std::string> models;           // members not listed have "m"
  std::map<proto::MemberId, std::string> fingerprints;     // members not listed have "f"
  std::map<proto::MemberId, proto::PlaneFacts> planes;     // members not listed report none
  std::map<proto::MemberId, proto::DeviceHealth> healths;  // members not listed have no GPU
  bool any_fingerprint = false;
  std::string resumed_fingerprint;  // that of the checkpoint from which the job resumes
};

}  // namespace regroup::membership
