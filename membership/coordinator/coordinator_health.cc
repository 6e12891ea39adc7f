// Members whose GPU is not healthy: refused before a World has them, and started elsewhere.
// docs/design/health.md.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "base/printable.h"
#include "membership/coordinator/coordinator.h"

namespace regroup::membership {
namespace {

// A killed process that hangs in the kernel must not keep the job from replacing others.
// Far below --min-members-timeout: the job may have too few members meanwhile.
constexpr base::Duration kEnd = std::chrono::seconds(10);
// All reasons are in one record of the journal.
constexpr std::size_t kLongestReason = 300, kLongestUuid = 100;

// "GPU-1 (NVIDIA H100): GPU 0: the fixed product has wrong bits in ..."
std::string reason(const proto::DeviceHealth& health) {
  std::string out =
      fmt::format("{}{}: {}", health.gpu, health.chip.empty() ? "" : " (" + health.chip + ")",
                  fmt::join(health.faults, "; "));
  out.resize(std::min(out.size(), kLongestReason));
  return out;
}

}  // namespace

// False: the member is refused. A GPU that another member was refused with is refused again: a
// fault that shows now and then is one.
bool Coordinator::accept_device(MemberInfo* r, proto::NodeId node,
                                const std::optional<proto::DeviceHealth>& health) {
  if (!health || health->gpu.empty() || health->gpu.size() > kLongestUuid) return true;
  const RefusedDevice* const known = refused_devices_.find(node, health->gpu);
  if (known == nullptr && health->faults.empty()) return true;
  const std::string why = known != nullptr ? known->why : reason(*health);
  on_first_ready();  // a program that joins is not launched anew
  refuse_device(r, node, *health, why);
  return false;
}

// It is no failure of the program. The next member of the host gets another GPU; if there is none,
// the host has a slot less, and the job a member less unless another host has room.
void Coordinator::refuse_device(MemberInfo* r, proto::NodeId node,
                                const proto::DeviceHealth& health, const std::string& why) {
  const std::string sentence = fmt::format("member {} is refused: {}", r->id, why);
  outbox_.note(sentence);
  r->failure = {r->id, proto::kRefusedKind, "", sentence};
  RefusedDevice* const known = refused_devices_.find(node, health.gpu);
  if (known == nullptr) {
    refused_devices_.all.push_back({.node = node,
                                    .gpu = health.gpu,
                                    .member = r->id,
                                    .told_from = members_.next_id(),
                                    .why = why});
  } else if (r->id >= known->told_from) {
    lose_device_slot(node, known, *r);
  }
  outbox_.journal(refused_devices_);
  dismiss(r, false, why);
  ending_refused_[r->id] = now_ + kEnd;
  not_replaced(*r);
  if (stage_ == Stage::kHello) return;  // other members may not be known yet
  const bool room = !job_.driver_reports_nodes() || size_.capacity() >= policy_.min;
  const bool more =
      room && policy_.replace && budget_.any_left(size_.desired(), members_.used_slots());
  const bool may_come = job_.driver_reports_nodes() && world_.generation > 0;
  if (!more && !may_come && members_.staying() < policy_.min)
    end(1, fmt::format("{}: {} of at least {} left", sentence, members_.staying(),
                       base::counted(policy_.min, "member")));
}

// The host has no other GPU for a member that was told of the refused one. With a slot less each
// time, members go elsewhere in the end. Where the slots of the hosts limit the members, no restart
// slot is disabled: a host that comes gives it room again.
void Coordinator::lose_device_slot(proto::NodeId node, RefusedDevice* device,
                                   const MemberInfo& refused) {
  NodeTable::Node* const host = nodes_.find(node);
  if (job_.driver_reports_nodes() && host != nullptr && host->slots > 0) {
    device->told_from = members_.next_id();  // a restarted coordinator counts no member again
    ++device->slots_lost;
    ++host->lost;
    nodes_.resize(node, host->slots - 1);
    count_slots();
    outbox_.note(
        fmt::format("host {}: there is no other GPU for a member: it has {} now, `regroup resize` "
                    "tries them all again",
                    host->name, base::counted(host->slots, "slot")));
    if (!policy_.oversubscribe || nodes_.has_room()) return;
  }
  budget_.disable(refused.restart_slot);
  outbox_.note(
      fmt::format("slot {}: there is no other GPU for its member: the slot is disabled, `regroup "
                  "resize` enables it again",
                  refused.restart_slot));
}

// A process that is started on a host before the refused one has ended would share a GPU with
// another member.
void Coordinator::hold_nodes() {
  std::erase_if(ending_refused_, [&](const auto& one) { return now_ >= one.second; });
  std::set<proto::NodeId> held;
  for (const auto& [id, until] : ending_refused_) held.insert(members_.find(id)->slot_id.node);
  nodes_.hold(held);
}

// Of `regroup resize`: an administrator may have mended them.
void Coordinator::forget_refused_devices() {
  if (refused_devices_.all.empty()) return;
  refused_devices_ = {};
  for (const auto& [id, node] : nodes_.all()) {
    NodeTable::Node& host = *nodes_.find(id);
    if (host.lost > 0) nodes_.resize(id, host.slots + std::exchange(host.lost, 0));
  }
  count_slots();
  outbox_.journal(refused_devices_);
}

}  // namespace regroup::membership
