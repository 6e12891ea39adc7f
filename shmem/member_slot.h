// The slot of a member in the arena: its state word, doorbell, seals and arrivals. Part of
// docs/reference/formats/arena.md.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "proto/member_state.h"
#include "proto/world.h"
#include "shmem/doorbell.h"
#include "shmem/state_word.h"

namespace regroup::shmem {

// A member's arrivals at the synchronisation points of one chain of collective operations. A peer
// in a later instance has passed all points of this one. Point n uses the entries n % 2: a member
// that still reads those of n has not arrived at n + 1, so they are not overwritten before.
struct alignas(64) Channel {
  struct alignas(64) Arrival {
    std::atomic<std::uint64_t> word;  // number of the point 32 bits | digest of the signature 32
    std::byte payload[56];            // for the peers; valid once `word` says so
  };

  // {generation 24, position 40}; all peers read it at each point.
  std::atomic<std::uint64_t> instance;
  std::atomic<std::uint64_t> held;  // generation in which a group of ranks holds the channel
  Arrival arrivals[2];
  alignas(64)
      std::atomic<std::uint64_t> signatures[2][2];  // of the operation, for reports of a mismatch
};
enum class ChannelKind : std::uint8_t { kSteps = 0, kSections = 1 };

enum LeaveRequest : std::uint32_t {
  kStay = 0,
  kAtBoundary = 1,  // after a notice: leave at the next step boundary
  kNow = 2,         // excluded from the World; the reason comes as Excluded on the socket
};

// What other processes see of a member. The member writes it unless noted.
struct alignas(128) MemberSlot {
  alignas(128) Doorbell<RealPolicy> bell;
  alignas(128) std::atomic<std::uint64_t> state;  // shmem/state_word.h; agent: revoke()
  std::atomic<std::uint32_t> revoked_up_to;       // agent
  // Highest generation whose buffers the member will not touch again.
  std::atomic<std::uint32_t> left;
  std::atomic<std::uint32_t> occupied;  // agent: MemberId + 1, or 0 for a free slot
  std::atomic<std::uint32_t> dead;      // agent: 1 once its last store to a result is done
  std::atomic<std::uint32_t> finished;  // 1 once finish() committed: exit 0 is success
  // Enum LeaveRequest; agent, and kAtBoundary also the member's SIGTERM handler.
  std::atomic<std::uint32_t> leave_request;
  // Highest generation for which its part of the snapshot is written.
  std::atomic<std::uint32_t> donated;
  // Generation in which it reads or writes the snapshot, or 0; donors of later ones wait.
  std::atomic<std::uint32_t> using_snapshot;
  // Highest generation in which it has the state that the World resumes from: the copy's CRCs were
  // right, or its replay is complete.
  std::atomic<std::uint32_t> proved;
  // Of a state transfer (docs/design/catch_up.md): {number of the state transfer 24, step 40}, 0:
  // none.
  // Its part of the state after this step is in the snapshot.
  std::atomic<std::uint64_t> donated_step;
  std::atomic<std::uint64_t> transfer;  // agent: load the snapshot, then apply what the ring holds
  std::atomic<std::uint64_t> replayed;  // all up to this step is applied; step 0: it could not
  alignas(128) Channel channels[2];
  alignas(128) std::atomic<std::uint64_t> seals[proto::kMaxBuffers];
  // Progress, for `status` only.
  alignas(128) std::atomic<std::uint64_t> step;  // last applied
  std::atomic<std::uint64_t> applied_at;         // nanoseconds of CLOCK_MONOTONIC
  std::atomic<double> loss;            // mean over the batch of that step; NaN if none was recorded
  alignas(128) pthread_mutex_t alive;  // robust, held by the training thread as long as it lives

  // True if a member owns the slot and the agent has not seen its end.
  [[nodiscard]] bool has_living_member() const {
    return occupied.load(std::memory_order_acquire) != 0 &&
           dead.load(std::memory_order_acquire) == 0;
  }
};

}  // namespace regroup::shmem
