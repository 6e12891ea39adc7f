// The stages of a host's local checkpoint directory, from the start of the process that locks it to
// the end of the job, as a table. Pure.
#pragma once

#include <cstdint>

namespace regroup::writer {

enum class DirectoryStage : std::uint8_t {
  kOpen,          // no process holds a lock, and none is needed: checkpoints are written
  kLocking,       // a process is locking and preparing the directory
  kLate,          // the same, but it is silent, or another job holds the lock: the user was told
  kHeld,          // the process holds the lock
  kReleasing,     // the process was asked to release the lock, because the job is over
  kUnusable,      // the directory could not be prepared: nothing is ever written
  kLateUnusable,  // the same, after kLate
  kGivenUp,       // was still kLate at the end of the job
};

enum class DirectoryEvent : std::uint8_t {
  kStarted,    // a process that locks the directory was started, or could not be
  kDelayed,    // it did not answer in time, or another job holds the lock
  kLocked,     // it holds the lock
  kEnded,      // it ended with status 0
  kFailed,     // it ended otherwise
  kReleased,   // it was asked to release the lock
  kAbandoned,  // it was killed
};

// An event without an edge leaves the stage as it is.
[[nodiscard]] DirectoryStage next_stage(DirectoryStage stage, DirectoryEvent event);

// The directory is not locked yet.
[[nodiscard]] constexpr bool is_locking(DirectoryStage stage) {
  return stage == DirectoryStage::kLocking || stage == DirectoryStage::kLate;
}
// Nothing will ever be written.
[[nodiscard]] constexpr bool is_unusable(DirectoryStage stage) {
  return stage == DirectoryStage::kUnusable || stage == DirectoryStage::kLateUnusable;
}
// Checkpoints can be written now.
[[nodiscard]] constexpr bool can_write(DirectoryStage stage) {
  return !is_locking(stage) && !is_unusable(stage);
}
// The end of the job waits for the process.
[[nodiscard]] constexpr bool holds_up_the_end(DirectoryStage stage) {
  return stage == DirectoryStage::kLocking || stage == DirectoryStage::kReleasing;
}
// Members do not wait in finish() for a checkpoint.
[[nodiscard]] constexpr bool excuses_members(DirectoryStage stage) {
  return stage == DirectoryStage::kLate || is_unusable(stage);
}
// The directory did not answer, and never has since.
[[nodiscard]] constexpr bool was_late(DirectoryStage stage) {
  return stage == DirectoryStage::kLate || stage == DirectoryStage::kLateUnusable ||
         stage == DirectoryStage::kGivenUp;
}

}  // namespace regroup::writer
