// Decides, in pure functions, whether a host that is taken away at a deadline writes a final
// checkpoint.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "proto/world.h"
#include "shmem/save_mark.h"

namespace regroup::writer {

struct Remaining {
  std::optional<proto::Step> writing;  // step of the checkpoint that is being written
  base::Duration since{};              // how long that has been running
  std::uint64_t bytes = 0;             // size of a save
  double bandwidth = 0;                // measured bytes per second of writing; 0: not measured
  base::Duration time_left{};          // to the deadline
  bool copied = false;                 // only the copy in the second directory outlives this host
  double copy_bandwidth = 0;           // measured bytes per second of copying; 0: not measured
  std::optional<base::Duration> copying = {};  // how long a copy has been running, which must end
};

struct FinalCheckpointDecision {
  enum class What : std::uint8_t {
    kFinish,   // finish the checkpoint that is being written
    kPersist,  // have the state copied when a member leaves, and write it
    kKeep,     // write nothing more: the last committed checkpoint stays the newest
  };
  What what = What::kKeep;
  std::string why;  // a sentence
};

// "a last checkpoint is made before the end".
[[nodiscard]] const char* name_of(FinalCheckpointDecision::What what);

// Prefers to finish a checkpoint that is being written, because that needs less time than another
// save. Without a measured bandwidth the attempt is made: the deadline ends it in time, and
// nothing is lost.
[[nodiscard]] FinalCheckpointDecision decide_final_checkpoint(const Remaining& remaining);

// The time by which a save must be in the save area, so that it can be written to disk in time.
[[nodiscard]] base::TimePoint copied_by(base::TimePoint now, base::TimePoint deadline,
                                        std::uint64_t bytes, double bandwidth);

// The state of a requested last save, from the arena.
struct LastSeen {
  shmem::SaveMark mark;
  shmem::SaveRequest request;
  bool claimant_lives = true;    // the member that has claimed the request lives
  proto::MemberId claimant = 0;  // that member
  proto::Step newest = 0;        // newest step that any member has applied
  bool late = false;             // half of the time to the deadline has passed
  bool all_had_left = false;     // all members had left their World at the latest request
  base::Duration since{};        // time since the first request
};
// True if the save must be requested again, from every member, not only from one that leaves.
[[nodiscard]] bool must_request_again(const LastSeen& seen);
// Call when no member lives and nothing is being written. Returns a sentence if the newest state is
// not on disk, or was on disk before the request (`wrote`: a save was written since); else "".
[[nodiscard]] std::string outcome_of_last(const LastSeen& seen, bool wrote);

}  // namespace regroup::writer
