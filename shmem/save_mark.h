// State of the arena's save area: which step it holds, and who may write to it. One word; members
// and the agent change it by compare-and-swap. docs/design/checkpoint_in_a_job.md.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/world.h"
#include "shmem/doorbell.h"

namespace regroup::shmem {

struct SaveMark {
  enum class Phase : std::uint8_t {
    kIdle,    // free; `step` was the last one saved
    kWanted,  // each member of the node copies its share of the state after `step`
    kReady,   // complete: the agent writes it, even if members die
    kTaken,   // being written to the disk
  };
  Phase phase = Phase::kIdle;
  proto::Step step = 0;
  bool operator==(const SaveMark&) const = default;

  // To the disk: the save area is not free.
  [[nodiscard]] bool on_its_way() const { return phase == Phase::kReady || phase == Phase::kTaken; }
  [[nodiscard]] std::uint64_t pack() const { return step << 2 | static_cast<std::uint64_t>(phase); }
  [[nodiscard]] static SaveMark unpack(std::uint64_t word) {
    return {static_cast<Phase>(word & 3), word >> 2};
  }
};

// Number of shares that are missing. They count in the generation in which the save was requested:
// a member that has left it gives none.
struct SaveProgress {
  proto::Generation generation = 0;
  std::uint32_t left = 0;

  [[nodiscard]] std::uint64_t pack() const {
    return static_cast<std::uint64_t>(generation) << 32 | left;
  }
  [[nodiscard]] static SaveProgress unpack(std::uint64_t word) {
    return {static_cast<proto::Generation>(word >> 32), static_cast<std::uint32_t>(word)};
  }
};

// What the agent asks of members before an end that was announced: one of them brings the whole
// state alone.
struct SaveRequest {
  enum class What : std::uint8_t {
    kNone,
    kLater,       // an older one is being written: a leaving member waits for the next request
    kAtBoundary,  // the first member that leaves copies the state
    kNow,         // so does a member that waits for others
    kClaimed,     // member `by` copies it, or has
  };
  What what = What::kNone;
  std::uint32_t number = 0;  // of the request, modulo 2^13
  std::uint32_t by = 0;      // slot
  bool operator==(const SaveRequest&) const = default;

  // True while no member has claimed it.
  [[nodiscard]] bool open() const { return what != What::kNone && what != What::kClaimed; }
  [[nodiscard]] std::uint32_t pack() const {
    return by << 16 | (number & 0x1fff) << 3 | static_cast<std::uint32_t>(what);
  }
  [[nodiscard]] static SaveRequest unpack(std::uint32_t word) {
    return {static_cast<What>(word & 7), word >> 3 & 0x1fff, word >> 16};
  }
};

// At the start of the save area. Pieces of the state follow, then the description at `offset` of
// the area: JSON as regroup-persist takes it (docs/reference/formats/checkpoint.md), but for what
// only the agent knows.
struct SaveHeader {
  std::uint64_t offset;
  std::uint64_t bytes;
  std::atomic<std::uint64_t> progress;
  Doorbell<RealPolicy> bell;         // the agent sleeps on it
  std::atomic<std::uint32_t> asked;  // a SaveRequest of the agent, claimed by a member
  // When that must be in the area, in nanoseconds of CLOCK_MONOTONIC.
  std::atomic<std::int64_t> until;
  // 1: the agent cannot write now, since the directory does not answer.
  std::atomic<std::uint32_t> hangs;
  // Signs of life of the process that writes; the agent counts them.
  std::atomic<std::uint64_t> moved;
  // Step of the newest snapshot that could not be written; 0: none.
  std::atomic<std::uint64_t> failed;
  std::atomic<std::uint64_t> due;  // finish(): the last step, whose checkpoint must be on the disk
};
[[nodiscard]] inline SaveHeader& save_header(std::span<std::byte> area) {
  return *reinterpret_cast<SaveHeader*>(area.data());
}

}  // namespace regroup::shmem
