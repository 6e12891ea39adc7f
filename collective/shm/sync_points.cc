// Arrival words: how members arrive, and who wakes whom.
//
// Invariant: if all members have arrived, every sleeping member is rung. A member stores its
// arrival, executes a full fence, then polls all peers. One of these fences is the last, and the
// member that executes it then sees every arrival. A member that sees all arrivals in its first
// poll after its fence, or a mismatch, rings every sleeping peer; hence that last member does. It
// also sees which peers sleep: a member goes to sleep only after setting its "sleeping" flag and
// polling once more (shmem/doorbell.h). If that poll missed an arrival, poll and flag preceded the
// fence of that arrival, and so the last fence. So the other members need not ring.
//
// A fence is slow: it waits until the cache line of the arrival is back from the core that read it
// last. So a member may first poll without a fence, use what its peers published if they have all
// arrived, and fence afterwards (ring()): an arrival, once seen, stays, so this equals a poll after
// the fence. If that poll fails, the member fences and polls once more before it waits.
// tests/model/doorbell_model_test.cc runs every interleaving of a copy of this protocol.
// signal_and_leave() does not fence: it rings the peers that it sees asleep; a peer that it misses
// wakes up by its own timeout (ProgressEngine::wait()).
#include "collective/shm/sync_points.h"

#include <fmt/format.h>

#include <utility>

#include "collective/reduce/publish.h"

namespace regroup::collective::shm {
namespace {

constexpr unsigned kPositionBits = 40;

proto::Generation generation_of(std::uint64_t instance) {
  return static_cast<proto::Generation>(instance >> kPositionBits);
}

// The digest has kind, dtype and op in full, and a hash of the other fields.
std::uint32_t digest(CollectiveSignature signature) {
  const std::uint64_t exact =
      (signature.what & 15) | (signature.what >> 8 & 15) << 4 | (signature.what >> 16 & 7) << 8;
  const std::uint64_t rest =
      (signature.bytes ^ (signature.what >> 32) << 40) * 0x9e3779b97f4a7c15ULL;
  return static_cast<std::uint32_t>(exact | rest >> 43 << 11);
}

}  // namespace

SyncPoints::SyncPoints(proto::Generation generation, proto::Position position,
                       std::vector<Peer> peers, int self)
    : generation_(generation),
      instance_(static_cast<std::uint64_t>(generation) << kPositionBits | position.value),
      peers_(std::move(peers)),
      self_(static_cast<std::size_t>(self)),
      mismatched_rank_(self_) {}

base::Status SyncPoints::open() {
  if (mine().instance.load(std::memory_order_relaxed) >= instance_) {
    return base::invalid_argument(fmt::format(
        "communicator: instance {} of generation {} was opened before, or a later one was",
        instance_ & ((1ULL << kPositionBits) - 1), generation_));
  }
  for (auto& arrival : mine().arrivals) arrival.word.store(0, std::memory_order_seq_cst);
  for (const std::uint64_t sync_point : {0, 1}) post_signature(CollectiveSignature(), sync_point);
  mine().instance.store(instance_, std::memory_order_seq_cst);
  opened_ = true;
  ring_others();  // a peer that still waits in an earlier instance fails
  return {};
}

base::Status SyncPoints::arrive(CollectiveSignature signature, std::span<const std::byte> payload) {
  if (!opened_) REGROUP_RETURN_IF_ERROR(open());
  prepare(signature, payload);
  reduce::publish(word(), word_);
  back_off();
  if (poll_and_ring() == PollResult::kMismatch) return base::invalid_argument(describe_mismatch());
  return {};
}

// The signature has a cache line of its own, apart from the arrivals that peers poll. While
// operations have the same signature, this line is not written.
void SyncPoints::post_signature(const CollectiveSignature& signature, std::uint64_t sync_point) {
  posted_[sync_point % 2] = {signature, digest(signature)};
  auto& words = mine().signatures[sync_point % 2];
  words[0].store(signature.what, std::memory_order_relaxed);
  words[1].store(signature.bytes, std::memory_order_relaxed);
}

void SyncPoints::signal_and_leave(const CollectiveSignature& signature,
                                  std::span<const std::byte> payload) {
  prepare(signature, payload);
  signal();
  arrived_last_ = false;
  ring_others();
}

SyncPoints::PollResult SyncPoints::poll_and_ring() {
  const PollResult seen = poll(true);
  arrived_last_ = seen == PollResult::kComplete;
  if (seen != PollResult::kIncomplete) ring_others();
  return seen;
}

SyncPoints::PollResult SyncPoints::poll(bool thorough, std::size_t known_arrived) {
  const auto is_here = [&](std::size_t i) {
    return i == self_ || i == known_arrived || has_arrived(i);
  };
  while (first_missing_ < peers_.size() && is_here(first_missing_)) ++first_missing_;
  for (std::size_t i = first_missing_ + 1; thorough && i < peers_.size(); ++i)
    static_cast<void>(is_here(i));
  if (mismatched_rank_ != self_) return PollResult::kMismatch;
  return first_missing_ == peers_.size() ? PollResult::kComplete : PollResult::kIncomplete;
}

base::Result<bool> SyncPoints::all_arrived(bool thorough) {
  const PollResult seen = poll(thorough);
  if (seen == PollResult::kMismatch) return base::invalid_argument(describe_mismatch());
  return seen == PollResult::kComplete;
}

std::optional<Mismatch> SyncPoints::mismatch() const {
  if (mismatched_rank_ == self_) return std::nullopt;
  const auto& words = peers_[mismatched_rank_].channel->signatures[epoch_ % 2];
  return Mismatch{
      mismatched_rank_,
      {words[0].load(std::memory_order_relaxed), words[1].load(std::memory_order_relaxed)}};
}

std::string SyncPoints::describe_mismatch() const {
  const Mismatch other = *mismatch();
  return fmt::format("{}: rank {} is in {}, rank {} in {}", name_of(signature()), self_,
                     describe(signature()), other.rank, describe(other.signature));
}

// A member in a later instance has finished this one. A member in a later generation may not have,
// but no generation begins before the previous one is over.
bool SyncPoints::is_ahead(std::size_t member) {
  const shmem::Channel& channel = *peers_[member].channel;
  const std::uint64_t instance = channel.instance.load(std::memory_order_seq_cst);
  if (instance != instance_) {
    over_ = over_ || generation_of(instance) > generation_;
    return instance > instance_;
  }
  // That member cannot have arrived at a later point of the same parity: it would need our arrival
  // at the point between.
  const std::uint64_t word = channel.arrivals[epoch_ % 2].word.load(std::memory_order_seq_cst);
  if (word == word_) return true;
  if (word >> 32 != word_ >> 32) return false;
  // Not a mismatch if the word already belongs to a later instance.
  if (channel.instance.load(std::memory_order_seq_cst) == instance_) mismatched_rank_ = member;
  return true;
}

std::string SyncPoints::list_missing() {
  std::string list;
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (i == self_ || has_arrived(i)) continue;
    const bool dead = peers_[i].slot->dead.load(std::memory_order_acquire) != 0;
    list += fmt::format("{}{}{}", list.empty() ? "" : ", ", i, dead ? " (dead)" : "");
  }
  return fmt::format("{}: rank {} of {} did not arrive", name_of(signature()), list, peers_.size());
}

}  // namespace regroup::collective::shm
