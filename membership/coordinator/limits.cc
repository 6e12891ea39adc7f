// What is due, and the sentences of the limits that end a job.
#include "membership/coordinator/limits.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>

#include "base/printable.h"

namespace regroup::membership {
namespace {

constexpr base::Duration kSecond = std::chrono::seconds(1);

long whole_seconds(base::Duration time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time).count();
}

// For a World of fixed size, whose members are ranks.
std::string missing_ranks(const MemberTable& members, std::uint32_t size, long seconds) {
  std::vector<proto::MemberId> missing;
  for (const auto& [id, r] : members.all()) {
    if (r.state == MemberState::kStarting) missing.push_back(id);
  }
  return fmt::format("{} of {} ranks have called join(), and within {} s rank{} {} did not",
                     size - missing.size(), size, seconds, missing.size() == 1 ? "" : "s",
                     fmt::join(missing, ", "));
}

}  // namespace

Limits::Limits(const Policy& policy)
    : min_(policy.min),
      max_(policy.max),
      fixed_(policy.fixed),
      wait_(policy.min_members_timeout),
      ready_timeout_(policy.ready_timeout) {}

Limits::Due Limits::due(base::TimePoint now, const Circumstances& at, MemberTable* members) {
  watch_minimum(now, at, *members);
  if (below_min_since_ && now >= *below_min_since_ + wait_) {
    return {.end = fmt::format("{} of at least {} for {} s (--min-members-timeout)",
                               members->count(MemberState::kWarm, MemberState::kDraining),
                               base::counted(min_, "member"), whole_seconds(wait_))};
  }
  Due due{.kill = members->take_overdue(now)};
  if (at.joined_at) due.unready = unready(now, *at.joined_at, *members);
  if (fixed_ && !due.unready.empty()) {
    due.unready.clear();
    due.end = missing_ranks(*members, max_, whole_seconds(ready_timeout_));
    return due;
  }
  due.straggling = straggling(now, at, *members);
  due.query = at.has_world && now >= next_query_;
  return due;
}

void Limits::watch_minimum(base::TimePoint now, const Circumstances& at,
                           const MemberTable& members) {
  const bool plain = !at.joined_at || members.any_finished();
  const auto able = at.has_world ? members.count(MemberState::kWarm, MemberState::kDraining)
                                 : members.count(MemberState::kStarting, MemberState::kWarm);
  if (plain || able >= at.least) {
    below_min_since_.reset();
  } else if (!below_min_since_) {
    below_min_since_ = now;
  }
}

// A member of the launch has the whole time from the first join on.
std::vector<proto::MemberId> Limits::unready(base::TimePoint now, base::TimePoint joined_at,
                                             const MemberTable& members) {
  std::vector<proto::MemberId> out;
  if (now < first_unready_due_) return out;
  first_unready_due_ = base::TimePoint::max();
  for (const auto& [id, r] : members.all()) {
    if (r.state != MemberState::kStarting) continue;
    const base::TimePoint due = std::max(r.since, joined_at) + ready_timeout_;
    if (now >= due)
      out.push_back(id);
    else
      first_unready_due_ = std::min(first_unready_due_, due);
  }
  return out;
}

Limits::StragglerAction Limits::straggling(base::TimePoint now, const Circumstances& at,
                                           const MemberTable& members) {
  if (!at.steady || !members.any_unfinished() || !members.any_finished()) {
    straggling_since_.reset();
    return StragglerAction::kNone;
  }
  if (!straggling_since_) {
    straggling_since_ = now;
    return StragglerAction::kQuery;
  }
  return now >= *straggling_since_ + kSecond ? StragglerAction::kRegroup : StragglerAction::kNone;
}

void Limits::started(base::TimePoint now) {
  first_unready_due_ = std::min(first_unready_due_, now + ready_timeout_);
}

void Limits::queried(base::TimePoint now, bool soon) {
  next_query_ = now + (soon ? kSecond / 10 : kSecond);
}

std::optional<base::TimePoint> Limits::next_change(base::TimePoint now) const {
  std::optional<base::TimePoint> next;
  const auto consider = [&](base::TimePoint at) {
    if (at > now && (!next || at < *next)) next = at;
  };
  consider(next_query_);
  if (below_min_since_) consider(*below_min_since_ + wait_);
  return next;
}

}  // namespace regroup::membership
