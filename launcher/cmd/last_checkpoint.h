// What becomes of a job's checkpoints on a host that has to go at a deadline: a pure decision.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/clock.h"
#include "core/world.h"

namespace regroup::cmd {

struct Remaining {
  std::optional<core::Step> writing;  // the checkpoint on its way to the disk ...
  core::Duration since{};             // ... for so long
  std::uint64_t bytes = 0;            // of a snapshot
  double bandwidth = 0;               // bytes per second of checkpoints written before; 0: of none
  core::Duration left{};              // to the deadline
  bool copied = false;                // only its copy in the second directory outlives this host ...
  double copy_bandwidth = 0;          // ... of which so many bytes per second were measured; 0: of none
  std::optional<core::Duration> copying = {};  // one is on its way for so long, and comes first
};

struct LastChoice {
  enum class What : std::uint8_t {
    kFinish,   // let the one that is being written be finished
    kPersist,  // take a snapshot when a member leaves, and write it
    kKeep,     // write nothing more: the last one that is committed counts
  };
  What what = What::kKeep;
  std::string why;  // a sentence
};

// Finishing comes before another snapshot: it is nearer. Without a measured bandwidth it is tried: the
// deadline ends it in time, and nothing is lost.
[[nodiscard]] LastChoice choose_last(const Remaining& remaining);

}  // namespace regroup::cmd
