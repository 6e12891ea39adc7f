// Counting members by what they do.
#include "membership/coordinator/member_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

namespace regroup::membership {

void MemberInfo::take_report(const proto::SlotReport& slot) {
  word = slot.state;
  step = slot.step;
  loss = slot.loss;
  reports += 1;
  caught_up_to = std::max(caught_up_to, slot.caught_up_to);
  proved |= slot.proved;
  finished |= slot.finished;
}

void MemberInfo::move_to(MemberState next) {
  assert(may_follow(state, next));
  state = next;
}

MemberInfo& MemberTable::add(proto::MemberId id, proto::NodeId node, base::TimePoint now) {
  MemberInfo& r = members_[id];
  r.id = id;
  r.slot_id.node = node;
  r.since = now;
  nodes_[node].members.insert(id);
  edited_.push_back(&r);
  return r;
}

void MemberTable::restore(const proto::World& world) {
  for (const proto::WorldMember& m : world.members) {
    MemberInfo& r = add(m.id, m.slot_id.node, {});
    r.slot_id = m.slot_id;
    r.entry = m;
    r.rank = static_cast<int>(&m - world.members.data());
    r.restart_slot = static_cast<std::uint32_t>(r.rank);
    r.entered = base::TimePoint(base::Duration(1));  // unknown, but long ago
    r.entered_at = world.resume.step();
    r.state = MemberState::kActive;
  }
}

void MemberTable::restore(const Intent& intent) {
  reserve_ids(intent.next_member);
  for (const Intent::Mark& mark : intent.marks) {
    MemberInfo* r = edit(mark.member);
    if (r == nullptr) continue;
    r->state = mark.state;
    r->leave_wanted = mark.leave_wanted;
  }
}

void MemberTable::save(Intent* intent) const {
  intent->next_member = std::max(promised_below_, next_id());
  intent->marks.clear();
  for (const auto& [id, r] : members_) {
    if (!r.in_world() || (r.state == MemberState::kActive && !r.leave_wanted)) continue;
    intent->marks.push_back({id, r.state, r.leave_wanted});
  }
}

MemberInfo* MemberTable::edit(proto::MemberId id) {
  const auto found = members_.find(id);
  if (found == members_.end()) return nullptr;
  edited_.push_back(&found->second);
  return &found->second;
}

const MemberInfo* MemberTable::find(proto::MemberId id) const {
  const auto found = members_.find(id);
  return found == members_.end() ? nullptr : &found->second;
}

std::map<proto::MemberId, MemberInfo>& MemberTable::edit_all() {
  all_edited_ = true;
  return members_;
}

const std::set<proto::MemberId>& MemberTable::on_node(proto::NodeId node) const {
  return nodes_[node].members;
}

void MemberTable::end_edits() {
  count();
  edited_.clear();
  all_edited_ = false;
}

std::uint32_t MemberTable::traits_of(const MemberInfo& r) {
  const auto warm = r.state == MemberState::kWarm, active = r.state == MemberState::kActive;
  const bool stays = r.state <= MemberState::kActive && !r.leave_wanted;
  std::uint32_t traits = 1U << static_cast<unsigned>(r.state);
  const auto add = [&](Trait trait, bool has) {
    traits |= static_cast<std::uint32_t>(has) << trait;
  };
  add(kStays, stays);
  add(kStaysActive, stays && active);
  add(kHolds, stays && active && r.has_state());
  add(kRuns, !r.reaped());
  add(kFinished, r.finished);
  add(kUnfinished, r.lives_in_world() && !r.finished);
  add(kBreaks, r.state == MemberState::kDrained || (r.state == MemberState::kLost && !r.finished));
  add(kLearns, warm && is_learner(r.catch_up));
  add(kLacksResults, r.lacks_results());
  add(kWaits, active && r.leave_wanted);
  return traits;
}

void MemberTable::count() const {
  if (all_edited_) {
    for (const auto& [id, r] : members_) count(r);
  } else {
    for (const MemberInfo* r : edited_) count(*r);
  }
}

void MemberTable::count(const MemberInfo& r) const {
  if (r.kill_at) earliest_kill_ = std::min(earliest_kill_, *r.kill_at);
  const std::uint32_t now = traits_of(r), changed = now ^ r.counted_;
  if (changed == 0) return;
  for (unsigned trait = 0; trait < kTraits; ++trait) {
    if ((changed >> trait & 1) != 0) counts_[trait] += (now >> trait & 1) != 0 ? 1 : -1;
  }
  if ((changed >> kRuns & 1) != 0) {
    nodes_[r.slot_id.node].processes += (now >> kRuns & 1) != 0 ? 1 : -1;
    load_changed_.insert(r.slot_id.node);
  }
  if ((changed >> kWaits & 1) != 0) {
    if ((now >> kWaits & 1) != 0)
      waiting_.insert(r.id);
    else
      waiting_.erase(r.id);
  }
  r.counted_ = now;
  ++version_;
}

std::uint32_t MemberTable::count(MemberState first, MemberState last) const {
  count();
  const auto at = [this](MemberState state) {
    return counts_.begin() + static_cast<std::ptrdiff_t>(state);
  };
  return std::accumulate(at(first), at(last) + 1, 0U);
}

MemberCounts MemberTable::counts(const proto::World& world) const {
  count();
  return {.started = world.generation > 0,
          .starting = count(MemberState::kStarting),
          .warm = count(MemberState::kWarm) - learning(),
          .learning = learning(),
          .staying = staying_active(),
          .in_world = count(MemberState::kActive, MemberState::kDraining),
          .breaking = of(kBreaks),
          .finishing = any_finished(),
          .unfinished = any_unfinished()};
}

std::map<proto::NodeId, std::uint32_t> MemberTable::take_loads() {
  count();
  std::map<proto::NodeId, std::uint32_t> loads;
  for (const proto::NodeId node : std::exchange(load_changed_, {}))
    loads[node] = nodes_[node].processes;
  return loads;
}

std::vector<proto::MemberId> MemberTable::take_overdue(base::TimePoint now) {
  std::vector<proto::MemberId> out;
  if (now < earliest_kill()) return out;
  base::TimePoint next = base::TimePoint::max();
  for (auto& [id, r] : members_) {
    if (r.kill_at && now >= *r.kill_at) {
      r.kill_at.reset();
      out.push_back(id);
    }
    if (r.kill_at) next = std::min(next, *r.kill_at);
  }
  earliest_kill_ = next;
  return out;
}

proto::MemberId MemberTable::next_id() const {
  return std::max(reserved_below_, members_.empty() ? 0 : members_.rbegin()->first + 1);
}

Roster MemberTable::roster(const proto::World& world, base::TimePoint below_min_since) const {
  Roster out{.started = world.generation > 0, .below_min_since = below_min_since};
  for (const proto::WorldMember& m : world.members) {
    const auto found = members_.find(m.id);
    if (found != members_.end() && found->second.in_world()) out.members.push_back(found->second);
  }
  std::vector<const MemberInfo*> others;
  for (const auto& [id, r] : members_) {
    if (!r.in_world() && r.state != MemberState::kGone) others.push_back(&r);
  }
  std::sort(others.begin(), others.end(), [&](const MemberInfo* a, const MemberInfo* b) {
    // At the start the order of the processes' ranks, later that of readiness.
    if (!out.started || a->warm_order == b->warm_order) return a->id < b->id;
    return a->warm_order < b->warm_order;
  });
  for (const MemberInfo* r : others) out.members.push_back(*r);
  return out;
}

std::vector<bool> MemberTable::used_slots() const {
  std::vector<bool> used(members_.size());
  for (const auto& [id, r] : members_) {
    if (r.state > MemberState::kActive || r.leave_wanted) continue;
    if (r.restart_slot >= used.size()) used.resize(r.restart_slot + 1);
    used[r.restart_slot] = true;
  }
  return used;
}

std::uint32_t MemberTable::free_slot() const {
  const std::vector<bool> used = used_slots();
  return static_cast<std::uint32_t>(std::ranges::find(used, false) - used.begin());
}

std::string MemberTable::ids_of_living() const {
  std::vector<proto::MemberId> ids;
  for (const auto& [id, r] : members_) {
    if (r.state < MemberState::kLost) ids.push_back(id);
  }
  return fmt::format("{}", fmt::join(ids, ", "));
}

const MemberInfo* MemberTable::first_failure(base::TimePoint since) const {
  const MemberInfo* first = nullptr;
  for (const auto& [id, r] : members_) {
    if (!r.reaped() || r.ended_by == EndedBy::kCoordinator || r.status == 0 || r.since < since)
      continue;
    if (first == nullptr || r.since < first->since) first = &r;
  }
  return first;
}

}  // namespace regroup::membership
