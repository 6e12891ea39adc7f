// Decides, as a pure function, whether a host that goes at a deadline writes a final checkpoint.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "proto/world.h"
#include "shmem/save_mark.h"

namespace regroup::writer {

struct Remaining {
  std::optional<proto::Step> writing;  // the checkpoint that is being written ...
  base::Duration since{};              // ... for so long
  std::uint64_t bytes = 0;             // of a snapshot
  double bandwidth = 0;                // bytes per second of checkpoints written before; 0: of none
  base::Duration left{};               // to the deadline
  bool copied = false;                 // only the copy in the second directory outlives this host
  double copy_bandwidth = 0;           // measured bytes per second of such copies; 0: not measured
  std::optional<base::Duration> copying = {};  // a copy runs since so long and must end first
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

// "a last checkpoint is made before the end".
[[nodiscard]] const char* name_of(FinalCheckpointDecision::What what);

// A checkpoint that is being written comes before another snapshot, because it needs less time.
// Without a measured bandwidth it is tried: the deadline ends it in time, and nothing is lost.
[[nodiscard]] FinalCheckpointDecision decide_final_checkpoint(const Remaining& remaining);

// The time at which a snapshot must be in the save area, so that enough time is left for the disk.
[[nodiscard]] base::TimePoint copied_by(base::TimePoint now, base::TimePoint deadline,
                                        std::uint64_t bytes, double bandwidth);

// The state of a requested last snapshot, from the arena.
struct LastSeen {
  shmem::SaveMark mark;
  shmem::SaveRequest request;
  bool claimant_lives = true;    // of a claimed request
  proto::MemberId claimant = 0;  // likewise
  proto::Step newest = 0;        // that any member has applied
  bool late = false;             // half of the time has passed
  bool had_left = false;         // all members, when they were asked last
  base::Duration since{};        // the members were asked
};
// True: request it again. Then every member may save its state where it is, not only one that
// leaves.
[[nodiscard]] bool ask_again(const LastSeen& seen);
// For the time when no member lives and nothing is being written: a sentence if the newest state is
// not on the disk, or was there before the request (`wrote`: a snapshot was written since); else
// "".
[[nodiscard]] std::string outcome_of_last(const LastSeen& seen, bool wrote);

}  // namespace regroup::writer
