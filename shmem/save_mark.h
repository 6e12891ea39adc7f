// The words that coordinate the arena's save area, in which members copy the state that the agent
// then saves as a checkpoint. Members and agent change them by compare-and-swap.
// docs/design/checkpoint_in_a_job.md.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/world.h"
#include "shmem/doorbell.h"

namespace regroup::shmem {

// Which step the save area holds, and which process may write to it.
struct SaveMark {
  enum class Phase : std::uint8_t {
    kIdle,    // the area is free; `step` is the last one saved
    kWanted,  // each member of the host copies its share of the state after `step` into the area
    kReady,   // the state is complete: the agent will save it, even if members die
    kTaken,   // the state is being written to disk
  };
  Phase phase = Phase::kIdle;
  proto::Step step = 0;
  bool operator==(const SaveMark&) const = default;

  // True while the area holds a complete state that is not yet on disk.
  [[nodiscard]] bool on_its_way() const { return phase == Phase::kReady || phase == Phase::kTaken; }
  [[nodiscard]] std::uint64_t pack() const { return step << 2 | static_cast<std::uint64_t>(phase); }
  [[nodiscard]] static SaveMark unpack(std::uint64_t word) {
    return {static_cast<Phase>(word & 3), word >> 2};
  }
};

// Number `missing` of members that have not copied their share yet. Valid in `generation` only,
// that in which the save was requested: a member that has left it copies nothing.
struct SaveProgress {
  proto::Generation generation = 0;
  std::uint32_t missing = 0;

  [[nodiscard]] std::uint64_t pack() const {
    return static_cast<std::uint64_t>(generation) << 32 | missing;
  }
  [[nodiscard]] static SaveProgress unpack(std::uint64_t word) {
    return {static_cast<proto::Generation>(word >> 32), static_cast<std::uint32_t>(word)};
  }
};

// The agent's request before an announced end of the job or host: one member alone copies the whole
// state into the save area.
struct SaveRequest {
  enum class What : std::uint8_t {
    kNone,
    kLater,       // an older state is being written: a leaving member waits for the next request
    kAtBoundary,  // the first member that leaves copies the state
    kNow,         // as kAtBoundary; a member that waits for peers also copies the state
    kClaimed,     // the member in slot `by` copies the state, or has copied it
  };
  What what = What::kNone;
  std::uint32_t number = 0;  // sequence number of the request, modulo 2^13
  std::uint32_t by = 0;      // slot
  bool operator==(const SaveRequest&) const = default;

  // True for a request that no member has claimed.
  [[nodiscard]] bool open() const { return what != What::kNone && what != What::kClaimed; }
  [[nodiscard]] std::uint32_t pack() const {
    return by << 16 | (number & 0x1fff) << 3 | static_cast<std::uint32_t>(what);
  }
  [[nodiscard]] static SaveRequest unpack(std::uint32_t word) {
    return {static_cast<What>(word & 7), word >> 3 & 0x1fff, word >> 16};
  }
};

// The start of the save area. The pieces of the state follow, then a description: the JSON that
// regroup-persist reads (docs/reference/formats/checkpoint.md), without the fields that only the
// agent knows.
struct SaveHeader {
  std::uint64_t offset;                 // of the description in the area
  std::uint64_t bytes;                  // of the description
  std::atomic<std::uint64_t> progress;  // a SaveProgress
  Doorbell<RealPolicy> bell;            // the agent sleeps on it
  std::atomic<std::uint32_t> asked;     // a SaveRequest: the agent sets it, a member claims it
  // Deadline of `asked`, in nanoseconds of CLOCK_MONOTONIC.
  std::atomic<std::int64_t> until;
  // 1: the checkpoint directory does not respond, so the agent cannot write now.
  std::atomic<std::uint32_t> hangs;
  // Heartbeats of the checkpoint writer, which the agent counts.
  std::atomic<std::uint64_t> moved;
  // Step of the newest save that could not be written; 0: none.
  std::atomic<std::uint64_t> failed;
  // Set by finish(): the last step, whose checkpoint must be on disk before the job ends.
  std::atomic<std::uint64_t> due;
};
[[nodiscard]] inline SaveHeader& save_header(std::span<std::byte> area) {
  return *reinterpret_cast<SaveHeader*>(area.data());
}

}  // namespace regroup::shmem
