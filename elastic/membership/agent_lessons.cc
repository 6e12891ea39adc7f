// The agent's part in lessons, as giver and as taker. docs/design/learners.md.
#include <algorithm>
#include <utility>

#include "elastic/membership/agent_core.h"

namespace regroup::membership {

void AgentCore::on_teach(const core::Teach& teach) {
  core::Taught answer{teach.lesson, teach.step, options_.endpoints, ""};
  readers_.clear();
  stop_fetch();  // the snapshot is for what is taught now
  if (!arena_.mapped() || round_open()) {
    answer.why = "a generation is over here";
  } else {
    const auto step = giver_.begin(arena_, {teach.lesson, teach.step}, *world_);
    if (step.ok())
      answer.step = *step;
    else
      answer.why = step.status().message();
  }
  emit(ToCoordinator{std::move(answer)});
}

void AgentCore::on_learn(const core::Learn& learn) {
  stop_fetch();
  taker_.end(arena_);
  std::vector<LessonTaker::Seated> learners;
  for (const core::MemberId id : learn.members) {
    const auto found = members_.find(id);
    if (found == members_.end() || !found->second.slot || found->second.dead || world_->rank_of(id) >= 0)
      continue;  // the coordinator knows or will hear of it
    learners.push_back({id, *found->second.slot});
  }
  if (learners.empty()) return;
  taker_.begin({learn.lesson, learn.step}, learners);
  fetched_ = {.snapshot = false, .kept = learn.step, .newest = learn.step};
  published_ = learn.step;
  taught_here_ = std::ranges::any_of(
      learn.sources, [this](const core::Source& source) { return source.node == options_.node; });
  if (taught_here_ && giver_.active() && giver_.mark() == taker_.mark()) return;
  if (taught_here_ || learn.sources.empty() || arena_.spec().kept_results == 0)
    return tell(taker_.break_off(arena_, "its node cannot give what it is to get"));
  if (snapshot_in_use(arena_)) return tell(taker_.break_off(arena_, "the snapshot is in use"));
  fetching_ = true;
  emit(Fetch{learn});
}

AgentEffects AgentCore::poll_lesson(bool* more) {
  *more = false;
  // What is published after the report may be ahead of the World that is formed of it.
  if (round_open()) return {};
  *more = giver_.poll(arena_, consumed());
  if (!giver_.broken().empty()) {
    const std::string why = giver_.broken();
    const core::LessonMark mark = giver_.mark();
    giver_.end(arena_);
    emit(ToCoordinator{core::Taught{mark.lesson, mark.step, options_.endpoints, why}});
    if (taught_here_) tell(taker_.break_off(arena_, why));
  }
  if (taker_.active()) {
    for (core::Step step = published_ + 1; !taught_here_ && step <= fetched_.kept; ++step)
      arena_.kept_step(step).store(step, std::memory_order_release);
    published_ = fetched_.kept;
    const LessonTaker::There there =
        taught_here_ ? LessonTaker::There{giver_.snapshot_complete(), giver_.kept(), giver_.kept()}
                     : fetched_;
    tell(taker_.poll(arena_, there, *world_));
  }
  return effects();
}

void AgentCore::tell(const std::vector<core::Learned>& news) {
  for (const core::Learned& learned : news) emit(ToCoordinator{learned});
}

core::Step AgentCore::consumed() const {
  const bool here = taught_here_ && taker_.active();
  if (!here && readers_.empty()) return giver_.mark().step;  // those on other nodes are on their way
  core::Step least = here ? taker_.consumed() : giver_.kept();
  for (const auto& [reader, has] : readers_) least = std::min(least, has.kept);
  return std::min(least, giver_.kept());
}

bool AgentCore::snapshot_read() const {
  return taker_.read() && std::ranges::all_of(readers_, [](const auto& r) { return r.second.snapshot; });
}

bool AgentCore::room_for(core::Step step) const {
  return step <= std::max(std::min(taker_.consumed(), step), taker_.mark().step) + arena_.spec().kept_results;
}

void AgentCore::on_given(std::uint64_t reader, std::optional<LessonTaker::There> has) {
  if (has)
    readers_[reader] = *has;
  else
    readers_.erase(reader);
}

AgentEffects AgentCore::on_fetch_failed(const std::string& why) {
  fetching_ = false;
  tell(taker_.break_off(arena_, why));
  return effects();
}

void AgentCore::stop_fetch() {
  if (std::exchange(fetching_, false)) emit(StopFetch{});
}

// Its last learner may have gone in the call.
AgentEffects AgentCore::effects() {
  if (!taker_.active()) stop_fetch();
  return std::exchange(effects_, {});
}

// Before the World is there for members to see: they and its donors may then write the snapshot.
void AgentCore::on_world_in_lesson(const core::World& world) {
  giver_.on_world(arena_, world, snapshot_read());
  if (!taker_.active()) return;
  if (taught_here_) {
    if (!giver_.broken().empty()) tell(taker_.break_off(arena_, giver_.broken()));
    return;
  }
  if (taker_.read() || std::ranges::none_of(world.members, &core::WorldMember::needs_state)) return;
  stop_fetch();
  tell(taker_.break_off(arena_, "the snapshot is needed for a member that does not learn"));
}

void AgentCore::end_lesson() {
  stop_fetch();
  if (!arena_.mapped()) return;
  taker_.end(arena_);
  giver_.end(arena_);
  readers_.clear();
}

}  // namespace regroup::membership
