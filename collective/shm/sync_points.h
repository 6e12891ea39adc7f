// The chain of rendezvous of one communicator's members. Each member announces its arrival, with the
// operation it is in, in its own channel of the arena; nobody passes rendezvous k before all have arrived at
// it, and nobody passes one at which the others are in another operation. Nothing here waits: the family
// does.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collective/shm/inline_chunk.h"
#include "collective/shm/publish.h"
#include "collective/shm/signature.h"
#include "core/arena.h"
#include "core/cpu.h"
#include "core/status.h"
#include "core/world.h"

namespace regroup::collective {

struct Peer {
  core::Line* line;
  core::Channel* channel;
};

// Owned and used by one thread.
class SyncPoints {
 public:
  static constexpr std::size_t kNoRank = ~std::size_t{0};
  static constexpr std::size_t kPayload = sizeof(core::Channel::Arrival::payload);

  // Of the member `peers[self]`. Touches nothing. `instance` is {generation, position}.
  SyncPoints(core::Generation generation, core::Position position, std::vector<Peer> peers, int self);

  // Publishes what this thread has stored, and arrives. Ends who waits in vain for an earlier instance.
  // `payload`, at most kPayload bytes, is for the others to see.
  [[nodiscard]] core::Status arrive(CollectiveSignature signature, std::span<const std::byte> payload = {});
  // What is seen of the others at the rendezvous at hand. kMismatch: somebody is in another operation.
  enum class PollResult { kIncomplete, kComplete, kMismatch };
  // The parts of arrive(), of a member that has arrived before, for which a Status on the way would cost too
  // much: what goes wrong is all_arrived()'s to tell. prepare() goes to the next rendezvous, of which the
  // others know behind announce(). Then a fence() and poll_and_ring(), which rings, or look() and behind that
  // ring().
  void prepare(const CollectiveSignature& signature, std::span<const std::byte> payload) {
    assert(opened_ && payload.size() <= kPayload);
    word_ = next_tag(signature).word;
    epoch_ += 1;
    first_missing_ = 0;
    copy_small(mine().arrivals[epoch_ % 2].payload, payload.data(), payload.size());
  }
  void signal() { publish_unfenced(word(), word_); }
  // Before the first look: a line that is about to be written is taken away from its writer by a look at it,
  // so who is the first to announce waits for a bit.
  void back_off() const {
    if (arrived_last_) core::cpu_relax();
  }
  // `sure`: a rank of which it is known.
  [[nodiscard]] PollResult poll(bool thorough, std::size_t known_arrived = kNoRank);
  void set_arrived_last(bool arrived_last) { arrived_last_ = arrived_last; }  // saw all at its first look
  void ring() {
    fence();
    ring_others();
  }
  [[nodiscard]] PollResult poll_and_ring();
  // look() for one that is all of the others.
  [[nodiscard]] PollResult poll_rank(std::size_t member) {
    if (!has_arrived(member)) return PollResult::kIncomplete;
    return mismatched_rank_ == self_ ? PollResult::kComplete : PollResult::kMismatch;
  }
  // Instead of arrive(), of who will not look for the others: rings those that sleep, but for one that falls
  // asleep just now.
  void signal_and_leave(const CollectiveSignature& signature, std::span<const std::byte> payload);
  // What marks the lines (lines.h) that are written before the next arrival, at `call`, and behind it read.
  [[nodiscard]] ChunkTag next_tag(const CollectiveSignature& signature) {
    Posted& posted = posted_[(epoch_ + 1) % 2];
    if (signature != posted.signature) post_signature(signature, epoch_ + 1);
    return {instance_, (epoch_ + 1) << 32 | posted.digest};
  }
  [[nodiscard]] ChunkTag tag() const { return {instance_, word_}; }
  // True when all have arrived at the last arrive(): then what they stored before is visible. Fails when
  // somebody is in another operation. `thorough` looks at all even when one is missing.
  [[nodiscard]] core::Result<bool> all_arrived(bool thorough);
  // Behind a rendezvous: has the line of the next arrival, which nobody reads any more, at hand to write.
  void prefetch_next() const { prefetch_for_write(&mine().arrivals[(epoch_ + 1) % 2]); }
  // Who was seen in another operation, and in which.
  struct Mismatch {
    std::size_t rank;
    CollectiveSignature signature;
  };
  [[nodiscard]] std::optional<Mismatch> mismatch() const;
  // What `rank` brought to the last rendezvous, which all have reached. Until this member arrives at the
  // next.
  [[nodiscard]] const std::byte* payload_of(std::size_t rank) const {
    return peers_[rank].channel->arrivals[epoch_ % 2].payload;
  }
  // "broadcast: rank 1, 3 (dead) of 4 did not arrive".
  [[nodiscard]] std::string list_missing();
  // True once a member was seen in a later generation; none begins before the one before it is over.
  [[nodiscard]] bool is_over() const { return over_; }

  // Number of rendezvous arrived at; the same in all members while they run the same operations.
  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }

 private:
  [[nodiscard]] core::Status open();
  void post_signature(const CollectiveSignature& signature, std::uint64_t sync_point);
  [[nodiscard]] std::atomic<std::uint64_t>& word() const { return mine().arrivals[epoch_ % 2].word; }
  void ring_others() const {
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      if (i != self_) core::ring_if_asleep(peers_[i].line->bell);
    }
  }
  // A member in this instance, at this rendezvous, in the same operation; or else.
  [[nodiscard]] bool has_arrived(std::size_t member) {
    const core::Channel& channel = *peers_[member].channel;
    const bool here = channel.instance.load(std::memory_order_seq_cst) == instance_ &&
                      channel.arrivals[epoch_ % 2].word.load(std::memory_order_seq_cst) == word_;
    return here || is_ahead(member);
  }
  [[nodiscard]] bool is_ahead(std::size_t member);
  [[nodiscard]] std::string describe_mismatch() const;
  [[nodiscard]] const CollectiveSignature& signature() const {
    return posted_[epoch_ % 2].signature;
  }  // at the rendezvous at hand
  [[nodiscard]] core::Channel& mine() const { return *peers_[self_].channel; }

  const core::Generation generation_;
  const std::uint64_t instance_;
  const std::vector<Peer> peers_;  // by rank
  const std::size_t self_;

  bool opened_ = false;
  bool arrived_last_ = false;  // was the last at the rendezvous before, so is the first behind it
  bool over_ = false;
  std::uint64_t epoch_ = 0;
  struct Posted {
    CollectiveSignature signature;
    std::uint32_t digest = 0;
  };
  Posted posted_[2];  // what our channel says of the rendezvous of either parity
  // The rendezvous at hand, number epoch_.
  std::uint64_t word_ = 0;
  std::size_t first_missing_ = 0;    // all before this rank have arrived at it
  std::size_t mismatched_rank_ = 0;  // a rank in another operation, or self_
};

}  // namespace regroup::collective
