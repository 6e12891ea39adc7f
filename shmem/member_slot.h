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

// A member's arrivals at the synchronisation points (barriers) of one sequence of collective
// operations. A peer with a later `instance` has passed all points of this one. Point n uses entry
// n % 2: it is overwritten only at point n + 2, which no member reaches before all have arrived at
// n + 1 and so have finished reading the entries of n.
struct alignas(64) Channel {
  struct alignas(64) Arrival {
    std::atomic<std::uint64_t> word;  // number of the point 32 bits | digest of the signature 32
    std::byte payload[56];            // for the peers; valid once `word` has the point's number
  };

  // {generation 24 bits, position 40 bits}; all peers read it at each point.
  std::atomic<std::uint64_t> instance;
  std::atomic<std::uint64_t> held;  // generation in which a group of ranks holds the channel
  Arrival arrivals[2];
  alignas(64) std::atomic<std::uint64_t> signatures[2][2];  // the operation's, to report a mismatch
};
enum class ChannelKind : std::uint8_t { kSteps = 0, kSections = 1 };

// Words of a member in sums over memory of GPUs (collective/cuda/device_reducer.h); 0 at first.
// Each holds the number of a sum: {generation 24 bits, position in it 40 bits}.
struct ReduceWords {
  alignas(64) std::atomic<std::uint64_t> slice;  // complete in this member's slice area
  alignas(
      64) std::atomic<std::uint64_t> gathered;  // copied by this member; it reads no slice of it
};

enum LeaveRequest : std::uint32_t {
  kStay = 0,
  kAtBoundary = 1,  // after a notice: leave at the next step boundary
  kNow = 2,         // excluded from the World; the socket brings Excluded with the reason
};

// The words of a member that other processes read. The member writes them, except those marked
// "agent".
struct alignas(128) MemberSlot {
  alignas(128) Doorbell<RealPolicy> bell;
  alignas(128) std::atomic<std::uint64_t> state;  // shmem/state_word.h; agent: revoke()
  std::atomic<std::uint32_t> revoked_up_to;       // agent
  // Highest generation whose buffers the member will not touch again.
  std::atomic<std::uint32_t> left_generation;
  std::atomic<std::uint32_t> occupied;  // agent: MemberId + 1, or 0 for a free slot
  std::atomic<std::uint32_t> dead;      // agent: 1 once its last store to a result is done
  std::atomic<std::uint32_t> finished;  // 1 once finish() committed: exit 0 is success
  // An enum LeaveRequest; agent (the member's SIGTERM handler also sets kAtBoundary).
  std::atomic<std::uint32_t> leave_request;
  // Highest generation for which the member has written its part of the snapshot.
  std::atomic<std::uint32_t> donated;
  // Generation in which the member reads or writes the snapshot, or 0; donors of later generations
  // wait until it is 0.
  std::atomic<std::uint32_t> using_snapshot;
  // Highest generation in which the member has the state from which the World resumes: the CRCs of
  // its copy matched, or its replay is complete.
  std::atomic<std::uint32_t> proved;
  // Three words for catch-up (docs/design/catch_up.md), each a proto::TransferStep, 0: none.
  // The member's part of the state after this step is in the snapshot.
  std::atomic<std::uint64_t> donated_step;
  // Agent: the member is to load the snapshot, then apply the results in the ring.
  std::atomic<std::uint64_t> transfer;
  // The member has applied all results up to this step; step 0: it failed to.
  std::atomic<std::uint64_t> replayed;
  // Bit b: the sum under seals[b] lies in leaf buffer b of the member's device line, else in buffer
  // b of the arena. Set while the seal is 0, or with the sum in both places; after the member's
  // death another one may move sums to the arena.
  std::atomic<std::uint32_t> on_device;
  alignas(128) Channel channels[2];
  alignas(128) std::atomic<std::uint64_t> seals[proto::kMaxBuffers];
  ReduceWords sums;
  // Progress, for `status` only.
  alignas(128) std::atomic<std::uint64_t> step;  // last applied
  std::atomic<std::uint64_t> applied_at;         // nanoseconds of CLOCK_MONOTONIC
  std::atomic<double> loss;            // mean over the batch of that step; NaN if none was recorded
  alignas(128) pthread_mutex_t alive;  // robust, held by the training thread as long as it lives

  // True if a member owns the slot and the agent has not seen that member's end.
  [[nodiscard]] bool has_living_member() const {
    return occupied.load(std::memory_order_acquire) != 0 &&
           dead.load(std::memory_order_acquire) == 0;
  }
};

}  // namespace regroup::shmem
