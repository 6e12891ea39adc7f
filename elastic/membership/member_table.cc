// Counting members by what they do.
#include "elastic/membership/member_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace regroup::membership {

Record& MemberTable::add(core::MemberId id, core::NodeId node, core::TimePoint now) {
  Record& r = records_[id];
  r.id = id;
  r.seat.node = node;
  r.since = now;
  return r;
}

Record* MemberTable::find(core::MemberId id) {
  const auto found = records_.find(id);
  return found == records_.end() ? nullptr : &found->second;
}

std::uint32_t MemberTable::count(MemberState first, MemberState last) const {
  return static_cast<std::uint32_t>(std::count_if(records_.begin(), records_.end(), [&](const auto& r) {
    return first <= r.second.state && r.second.state <= last;
  }));
}

std::uint32_t MemberTable::staying() const {
  return static_cast<std::uint32_t>(std::count_if(records_.begin(), records_.end(), [&](const auto& r) {
    return r.second.state <= MemberState::kActive && !r.second.leave_wanted;
  }));
}

std::uint32_t MemberTable::staying_active() const {
  return static_cast<std::uint32_t>(std::count_if(records_.begin(), records_.end(), [](const auto& r) {
    return r.second.state == MemberState::kActive && !r.second.leave_wanted;
  }));
}

std::uint32_t MemberTable::holders() const {
  return static_cast<std::uint32_t>(std::count_if(records_.begin(), records_.end(), [](const auto& entry) {
    const Record& r = entry.second;
    return r.state == MemberState::kActive && !r.leave_wanted && r.has_state();
  }));
}

std::uint32_t MemberTable::processes() const {
  return static_cast<std::uint32_t>(
      std::count_if(records_.begin(), records_.end(), [](const auto& r) { return !r.second.reaped; }));
}

bool MemberTable::any_finished() const {
  return std::any_of(records_.begin(), records_.end(), [](const auto& r) { return r.second.finished; });
}

std::map<core::NodeId, std::uint32_t> MemberTable::processes_by_node() const {
  std::map<core::NodeId, std::uint32_t> load;
  for (const auto& [id, r] : records_) load[r.seat.node] += !r.reaped;
  return load;
}

core::MemberId MemberTable::next_id() const {
  return std::max(reserved_below_, records_.empty() ? 0 : records_.rbegin()->first + 1);
}

Roster MemberTable::roster(const core::World& world, core::TimePoint below_min_since) const {
  Roster out{.started = world.generation > 0, .below_min_since = below_min_since};
  for (const core::WorldMember& m : world.members) {
    const auto found = records_.find(m.id);
    if (found != records_.end() && found->second.in_world()) out.members.push_back(found->second);
  }
  std::vector<const Record*> others;
  for (const auto& [id, r] : records_) {
    if (!r.in_world() && r.state != MemberState::kGone) others.push_back(&r);
  }
  std::sort(others.begin(), others.end(), [&](const Record* a, const Record* b) {
    // At the start the order of the processes' ranks, later that of readiness.
    if (!out.started || a->warm_order == b->warm_order) return a->id < b->id;
    return a->warm_order < b->warm_order;
  });
  for (const Record* r : others) out.members.push_back(*r);
  return out;
}

std::string MemberTable::ids_of_living() const {
  std::vector<core::MemberId> ids;
  for (const auto& [id, r] : records_) {
    if (r.state < MemberState::kLost) ids.push_back(id);
  }
  return fmt::format("{}", fmt::join(ids, ", "));
}

const Record* MemberTable::first_failure(core::TimePoint since) const {
  const Record* first = nullptr;
  for (const auto& [id, r] : records_) {
    if (!r.reaped || r.dismissed || r.status == 0 || r.since < since) continue;
    if (first == nullptr || r.since < first->since) first = &r;
  }
  return first;
}

void Backoff::failed(core::TimePoint now) {
  using std::chrono::milliseconds;
  const core::Duration delay = milliseconds(100) * (1 << std::min(failures_, 10U));
  not_before_ = now + std::min<core::Duration>(delay, std::chrono::seconds(10));
  ++failures_;
}

}  // namespace regroup::membership
