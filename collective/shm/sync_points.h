// The synchronisation points (barriers) of the members of a communicator, numbered from 1. At each
// point, every member publishes its arrival in its own channel of the arena: the number of the
// point, a digest of the signature of its operation, and a payload of up to 56 bytes. No member
// passes a point before all members have arrived at it, and none passes a point at which another
// member runs a different operation. Nothing here blocks; ProgressEngine waits.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "base/status.h"
#include "collective/local_communicator.h"
#include "collective/reduce/publish.h"
#include "collective/shm/inline_chunk.h"
#include "collective/signature.h"
#include "proto/world.h"
#include "shmem/arena.h"

namespace regroup::collective::shm {

struct Peer {
  shmem::MemberSlot* slot;
  shmem::Channel* channel;
};

// Epoch k is the time between points k and k + 1. Used by one thread.
class SyncPoints {
 public:
  static constexpr std::size_t kNoRank = ~std::size_t{0};
  static constexpr std::size_t kPayload = sizeof(shmem::Channel::Arrival::payload);

  // For the member `peers[self]`, and the instance of its communicator at `position` in
  // `generation`. Does not access the arena.
  SyncPoints(proto::Generation generation, proto::Position position, std::vector<Peer> peers,
             int self);

  // Publishes all earlier stores of this thread and arrives at the next point. Copies `payload`, at
  // most kPayload bytes. The first call opens the instance and wakes peers that wait in an earlier
  // one. kInvalidArgument if the instance was opened before, or if a peer runs another operation.
  [[nodiscard]] base::Status arrive(CollectiveSignature signature,
                                    std::span<const std::byte> payload = {});
  // The state of the current point. kMismatch: a member arrived with another signature.
  enum class PollResult { kIncomplete, kComplete, kMismatch };
  // arrive() in parts and without a Status, for a member that has called arrive() before;
  // all_arrived() reports mismatches. First prepare(), which moves on to the next point, then
  // signal(), which publishes the arrival; then either fence() and poll_and_ring(), or poll() and
  // afterwards ring().
  void prepare(const CollectiveSignature& signature, std::span<const std::byte> payload) {
    assert(opened_ && payload.size() <= kPayload);
    word_ = next_tag(signature).word;
    epoch_ += 1;
    first_missing_ = 0;
    reduce::copy_small(mine().arrivals[epoch_ % 2].payload, payload.data(), payload.size());
  }
  void signal() { reduce::publish_unfenced(word(), word_); }
  // Pauses if this member arrived last at the previous point: loading a line that a peer is about
  // to write would delay the peer's store.
  void back_off() const {
    if (arrived_last_) base::cpu_relax();
  }
  // `thorough`: check all members even when one is missing. `known_arrived`: a rank known to have
  // arrived.
  [[nodiscard]] PollResult poll(bool thorough, std::size_t known_arrived = kNoRank);
  void set_arrived_last(bool arrived_last) { arrived_last_ = arrived_last; }  // by the first poll()
  void ring() {
    reduce::fence();
    ring_others();
  }
  [[nodiscard]] PollResult poll_and_ring();
  // poll() for a communicator of two, whose other member is `member`.
  [[nodiscard]] PollResult poll_rank(std::size_t member) {
    if (!has_arrived(member)) return PollResult::kIncomplete;
    return mismatched_rank_ == self_ ? PollResult::kComplete : PollResult::kMismatch;
  }
  // arrive() for a member that will not wait at this point. It may miss a peer that is falling
  // asleep; therefore ProgressEngine::wait() sleeps for a limited time only.
  void signal_and_leave(const CollectiveSignature& signature, std::span<const std::byte> payload);
  // The tag with which to write inline chunks (inline_chunk.h) before the next arrival, in an
  // operation with this signature. After that arrival, tag() returns the tag to read them with.
  [[nodiscard]] ChunkTag next_tag(const CollectiveSignature& signature) {
    Posted& posted = posted_[(epoch_ + 1) % 2];
    if (signature != posted.signature) post_signature(signature, epoch_ + 1);
    return {instance_, (epoch_ + 1) << 32 | posted.digest};
  }
  [[nodiscard]] ChunkTag tag() const { return {instance_, word_}; }
  // True once all members have arrived at this point; all that they stored before is then visible.
  // kInvalidArgument if a member runs another operation.
  [[nodiscard]] base::Result<bool> all_arrived(bool thorough);
  // To be called after a point: prefetches for writing the line of the next arrival, which no
  // member reads any more.
  void prefetch_next() const { reduce::prefetch_for_write(&mine().arrivals[(epoch_ + 1) % 2]); }
  // The member that runs another operation, if any.
  [[nodiscard]] std::optional<Mismatch> mismatch() const;
  // The payload of `rank` at the current point, at which all members must have arrived; valid until
  // this member arrives again.
  [[nodiscard]] const std::byte* payload_of(std::size_t rank) const {
    return peers_[rank].channel->arrivals[epoch_ % 2].payload;
  }
  // "broadcast: rank 1, 3 (dead) of 4 did not arrive".
  [[nodiscard]] std::string list_missing();
  // True once a member was seen in a later generation, which begins only when this one is over.
  [[nodiscard]] bool is_over() const { return over_; }
  // Number of points arrived at; equal in all members while they run the same operations.
  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }

 private:
  [[nodiscard]] base::Status open();
  void post_signature(const CollectiveSignature& signature, std::uint64_t sync_point);
  [[nodiscard]] std::atomic<std::uint64_t>& word() const {
    return mine().arrivals[epoch_ % 2].word;
  }
  void ring_others() const {
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      if (i != self_) shmem::ring_if_asleep(peers_[i].slot->bell);
    }
  }
  // True when `member` has arrived at this point of this instance, or is past it.
  [[nodiscard]] bool has_arrived(std::size_t member) {
    const shmem::Channel& channel = *peers_[member].channel;
    const bool here = channel.instance.load(std::memory_order_seq_cst) == instance_ &&
                      channel.arrivals[epoch_ % 2].word.load(std::memory_order_seq_cst) == word_;
    return here || is_ahead(member);
  }
  [[nodiscard]] bool is_ahead(std::size_t member);
  [[nodiscard]] std::string describe_mismatch() const;
  [[nodiscard]] const CollectiveSignature& signature() const {
    return posted_[epoch_ % 2].signature;
  }
  [[nodiscard]] shmem::Channel& mine() const { return *peers_[self_].channel; }

  const proto::Generation generation_;
  const std::uint64_t instance_;
  const std::vector<Peer> peers_;  // by rank
  const std::size_t self_;

  bool opened_ = false;
  bool arrived_last_ = false;  // at the previous point, so that this member left it first
  bool over_ = false;
  std::uint64_t epoch_ = 0;
  struct Posted {
    CollectiveSignature signature;
    std::uint32_t digest = 0;
  };
  Posted posted_[2];  // the signatures in this member's channel, by parity of the point
  // State of the current point, number epoch_.
  std::uint64_t word_ = 0;
  std::size_t first_missing_ = 0;    // all ranks below have arrived
  std::size_t mismatched_rank_ = 0;  // a rank that runs another operation; self_: none
};

}  // namespace regroup::collective::shm
