// Implements docs/design/catch_up.md. Results are published to learners before poll(); may_have()
// includes them after it. The agent makes no Report in between, so a Report never states less than
// a learner has.
#include "membership/agent/transfer_target.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace regroup::membership {

void TransferTarget::begin(proto::TransferStep base, const std::vector<LearnerSlot>& learners) {
  base_ = base;
  announced_ = false;
  kept_up_to_ = base.step;
  learners_.clear();
  for (const LearnerSlot& learner : learners) learners_[learner.member].slot = learner.slot;
}

// Reads a learner's progress. Returns why the learner failed, or "".
std::string TransferTarget::read_progress(const shmem::Arena& arena, Learner* learner) const {
  const auto at = proto::TransferStep::unpack(
      arena.member_slot(learner->slot).replayed.load(std::memory_order_acquire));
  if (at.transfer != base_.transfer) return "";
  if (at.step == 0) return "the received data does not match its CRC32C";
  learner->replayed = at.step;
  return "";
}

std::vector<proto::TargetStatus> TransferTarget::poll(const shmem::Arena& arena,
                                                      const Received& received,
                                                      const proto::World& world) {
  std::vector<proto::TargetStatus> news;
  const bool announce =
      received.snapshot && !std::exchange(announced_, announced_ || received.snapshot);
  for (auto it = learners_.begin(); it != learners_.end();) {
    Learner& learner = it->second;
    shmem::MemberSlot& member_slot = arena.member_slot(learner.slot);
    if (announce) member_slot.transfer.store(base_.pack(), std::memory_order_seq_cst);
    if (announce || received.kept_up_to != kept_up_to_) shmem::ring(member_slot.bell);
    if (const std::string why = read_progress(arena, &learner); !why.empty()) {
      member_slot.transfer.store(0, std::memory_order_seq_cst);
      news.push_back({base_.transfer, it->first, 0, why});
      it = learners_.erase(it);
      continue;
    }
    const bool caught_up = learner.replayed > base_.step &&
                           learner.replayed >= received.kept_up_to &&
                           received.kept_up_to + 1 >= received.newest;
    if (!learner.reported && caught_up) {
      learner.reported = true;
      news.push_back({base_.transfer, it->first, learner.replayed, ""});
    }
    const bool proved = member_slot.proved.load(std::memory_order_acquire) != 0;
    if (!learner.arrived && proved && world.rank_of(it->first) >= 0) {
      learner.arrived = true;
      news.push_back({base_.transfer, it->first, learner.replayed, ""});
    }
    ++it;
  }
  kept_up_to_ = received.kept_up_to;
  return news;
}

std::vector<proto::TargetStatus> TransferTarget::break_off(const shmem::Arena& arena,
                                                           const std::string& why) {
  std::vector<proto::TargetStatus> news;
  for (const auto& [member, learner] : learners_) {
    if (!learner.arrived) news.push_back({base_.transfer, member, 0, why});
  }
  end(arena);
  return news;
}

void TransferTarget::end(const shmem::Arena& arena) {
  for (const auto& [member, learner] : learners_) {
    shmem::MemberSlot& member_slot = arena.member_slot(learner.slot);
    if (member_slot.occupied.load(std::memory_order_acquire) != member + 1) continue;
    member_slot.transfer.store(0, std::memory_order_seq_cst);
    shmem::ring(member_slot.bell);
  }
  learners_.clear();
}

proto::Step TransferTarget::may_have(proto::MemberId member) const {
  const auto found = learners_.find(member);
  return found != learners_.end() && found->second.reported ? kept_up_to_ : 0;
}

bool TransferTarget::read() const {
  return std::ranges::all_of(learners_, [](const auto& l) { return l.second.replayed > 0; });
}

proto::Step TransferTarget::consumed() const {
  proto::Step least = std::numeric_limits<proto::Step>::max();
  for (const auto& [member, learner] : learners_) {
    if (!learner.arrived) least = std::min(least, std::max(learner.replayed, base_.step));
  }
  return least;
}

}  // namespace regroup::membership
