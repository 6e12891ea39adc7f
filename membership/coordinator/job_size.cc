// Arithmetic of the size of a job.
#include "membership/coordinator/job_size.h"

#include <utility>

namespace regroup::membership {

JobSize::JobSize(const Policy& policy)
    : min_(policy.min),
      max_(policy.max),
      spares_(policy.spares),
      replace_(policy.replace),
      oversubscribe_(policy.oversubscribe),
      target_(policy.target),
      desired_(policy.target),
      capacity_(policy.slots),
      follows_hosts_(policy.target == 0) {}

void JobSize::restore(const Intent& intent) {
  target_ = intent.target;
  desired_ = journaled_ = intent.desired;
  follows_hosts_ = intent.said == 0;
  if (intent.said > 0) restored_leases_ = intent.target - std::min(intent.target, intent.said);
}

void JobSize::save(Intent* intent) const {
  intent->target = target_;
  intent->desired = desired_;
  intent->said = requested();
}

std::uint32_t JobSize::requested() const {
  return follows_hosts_ ? 0 : std::max(target_ - std::min(target_, leased()), 1U);
}

std::uint32_t JobSize::leased() const {
  std::uint32_t sum = restored_leases_;
  for (const auto& [id, share] : hosts_) sum += share.leased;
  return sum;
}

void JobSize::request(std::uint32_t members) {
  set(members);
  follows_hosts_ = false;
  hosts_.clear();
  restored_leases_ = 0;
}

bool JobSize::refill() {
  if (!replace_ || desired_ == target_) return false;
  desired_ = target_;
  return true;
}

void JobSize::leave_one() { set(std::max(floor(), std::max(desired_, 1U) - 1)); }
void JobSize::drop_one() { set(std::max(min_, std::max(desired_, 1U) - 1)); }

bool JobSize::lose_one() {
  if (replace_ || desired_ == 0) return false;
  --desired_;
  return true;
}

void JobSize::keep_at_most(std::uint32_t staying) {
  if (!replace_) desired_ = std::min(desired_, staying);
}

void JobSize::set_slots(std::uint32_t slots) {
  capacity_ = oversubscribe_ ? std::max(slots, max_ + spares_) : slots;
}

bool JobSize::fit_to_capacity() {
  if (target_ != 0 && target_ <= capacity_) return false;
  set(std::max(min_, std::min(max_, capacity_)));
  return true;
}

std::uint32_t JobSize::lease(proto::NodeId node, std::uint32_t slots, std::uint32_t lacked) {
  if (follows_hosts_ || oversubscribe_) return 0;
  const std::uint32_t most = max_ - std::min(max_, desired_);
  return hosts_[node].leased = std::min(slots - std::min(slots, lacked), most);
}

void JobSize::restore_lease(proto::NodeId node, std::uint32_t slots) {
  if (follows_hosts_ || oversubscribe_) return;
  hosts_[node].leased = std::min(slots, restored_leases_);
  restored_leases_ -= hosts_[node].leased;
}

bool JobSize::grow(std::uint32_t leased) {
  const std::uint32_t size = follows_hosts_ ? std::clamp(capacity_, min_, max_) : desired_ + leased;
  if (size <= desired_) return false;
  set(size);
  return true;
}

std::uint32_t JobSize::end_lease(proto::NodeId node) {
  const auto found = hosts_.find(node);
  const std::uint32_t leased = found == hosts_.end() ? 0 : std::exchange(found->second.leased, 0);
  if (leased == 0) return desired_;
  return std::min(desired_, std::max(min_, desired_ - std::min(desired_, leased)));
}

void JobSize::shrink_to(std::uint32_t size, bool for_now) {
  set(std::max(floor(), for_now ? size : std::min(size, capacity_)));
}

bool JobSize::settle_missing(proto::NodeId node, std::uint32_t had, std::uint32_t slots,
                             bool for_now) {
  HostShare& share = hosts_[node];
  if (for_now) {
    share.missing = std::min(lacked(), share.missing + had - std::min(had, slots));
    return false;
  }
  const std::uint32_t missing = std::min(lacked(), std::exchange(share.missing, 0));
  if (missing == 0 || slots > had) return false;
  set(std::max(floor(), desired_ - missing));
  return true;
}

bool JobSize::lose_host(proto::NodeId node) {
  const auto found = hosts_.find(node);
  if (found == hosts_.end()) return false;
  const bool leased = found->second.leased > 0;
  if (leased) set(end_lease(node));
  hosts_.erase(node);
  return leased;
}

}  // namespace regroup::membership
