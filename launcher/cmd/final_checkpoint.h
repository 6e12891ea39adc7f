// What becomes of a job's checkpoints on a host that has to go at a deadline: a pure decision.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/clock.h"
#include "core/save_mark.h"
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

struct FinalCheckpointDecision {
  enum class What : std::uint8_t {
    kFinish,   // let the one that is being written be finished
    kPersist,  // take a snapshot when a member leaves, and write it
    kKeep,     // write nothing more: the last one that is committed counts
  };
  What what = What::kKeep;
  std::string why;  // a sentence
};

[[nodiscard]] const char* name_of(
    FinalCheckpointDecision::What what);  // "a last checkpoint is made before the end"

// Finishing comes before another snapshot: it is nearer. Without a measured bandwidth it is tried: the
// deadline ends it in time, and nothing is lost.
[[nodiscard]] FinalCheckpointDecision decide_final_checkpoint(const Remaining& remaining);

// When a snapshot has to be in the save area: what is left then is for the disk.
[[nodiscard]] core::TimePoint copied_by(core::TimePoint now, core::TimePoint deadline, std::uint64_t bytes,
                                        double bandwidth);

// What the arena shows of a last snapshot that the members were asked for.
struct LastSeen {
  core::SaveMark mark;
  core::SaveRequest request;
  bool claimant_lives = true;   // of a claimed request
  core::MemberId claimant = 0;  // likewise
  core::Step newest = 0;        // that any member has applied
  bool late = false;            // half of the time has passed
  bool had_left = false;        // all members, when they were asked last
  core::Duration since{};       // the members were asked
};
// Every member that is asked again may copy the state where it stands, not only one that leaves.
[[nodiscard]] bool ask_again(const LastSeen& seen);
// Once no member lives and nothing is being written: a sentence where the newest state is not on the disk, or
// was before anybody asked (`wrote`: a snapshot has been written since); else "".
[[nodiscard]] std::string outcome_of_last(const LastSeen& seen, bool wrote);

}  // namespace regroup::cmd
