// The agent's part in state transfers, as source and as target. docs/design/catch_up.md.
#include <algorithm>
#include <utility>

#include "membership/agent/agent_core.h"

namespace regroup::membership {

void AgentCore::on_start_source(const proto::StartSource& order) {
  proto::SourceStatus answer{order.transfer, order.step, options_.endpoints, ""};
  readers_.clear();
  stop_fetch();  // the snapshot is for the new transfer
  if (!arena_.mapped() || awaits_world()) {
    answer.why = "the generation is over on this node";
  } else {
    const auto step = source_.begin(arena_, {order.transfer, order.step}, *world_);
    if (step.ok())
      answer.step = *step;
    else
      answer.why = step.status().message();
  }
  emit(ToCoordinator{std::move(answer)});
}

void AgentCore::on_start_target(const proto::StartTarget& order) {
  stop_fetch();
  target_.end(arena_);
  std::vector<TransferTarget::LearnerSlot> learners;
  for (const proto::MemberId id : order.members) {
    const auto found = members_.find(id);
    if (found == members_.end() || !found->second.slot || found->second.dead ||
        world_->rank_of(id) >= 0)
      continue;  // the coordinator knows, or will be told
    learners.push_back({id, *found->second.slot});
  }
  if (learners.empty()) return;
  target_.begin({order.transfer, order.step}, learners);
  fetched_ = {.snapshot = false, .kept = order.step, .newest = order.step};
  published_ = order.step;
  source_is_local_ = std::ranges::any_of(order.sources, [this](const proto::SourceAgent& source) {
    return source.node == options_.node;
  });
  if (source_is_local_ && source_.active() && source_.base() == target_.base()) return;
  if (source_is_local_ || order.sources.empty() || arena_.spec().kept_results == 0)
    return report_all(target_.break_off(arena_, "its node cannot fetch the state"));
  if (snapshot_in_use(arena_))
    return report_all(target_.break_off(arena_, "the snapshot is in use"));
  fetching_ = true;
  emit(Fetch{order});
}

AgentEffects AgentCore::poll_transfer(bool* more) {
  *more = false;
  // A result that is published after the report could put a learner ahead of the World that is
  // formed from it.
  if (awaits_world()) return {};
  *more = source_.poll(arena_, consumed());
  if (!source_.broken().empty()) {
    const std::string why = source_.broken();
    const proto::TransferStep mark = source_.base();
    source_.end(arena_);
    emit(ToCoordinator{proto::SourceStatus{mark.transfer, mark.step, options_.endpoints, why}});
    if (source_is_local_) report_all(target_.break_off(arena_, why));
  }
  if (target_.active()) {
    for (proto::Step step = published_ + 1; !source_is_local_ && step <= fetched_.kept; ++step)
      arena_.kept_step(step).store(step, std::memory_order_release);
    published_ = fetched_.kept;
    const TransferTarget::Received received =
        source_is_local_
            ? TransferTarget::Received{source_.snapshot_complete(), source_.kept(), source_.kept()}
            : fetched_;
    report_all(target_.poll(arena_, received, *world_));
  }
  return effects();
}

void AgentCore::report_all(const std::vector<proto::TargetStatus>& news) {
  for (const proto::TargetStatus& status : news) emit(ToCoordinator{status});
}

proto::Step AgentCore::consumed() const {
  const bool here = source_is_local_ && target_.active();
  if (!here && readers_.empty())
    return source_.base().step;  // targets on other nodes are still connecting
  proto::Step least = here ? target_.consumed() : source_.kept();
  for (const auto& [reader, has] : readers_) least = std::min(least, has.kept);
  return std::min(least, source_.kept());
}

bool AgentCore::snapshot_read() const {
  return target_.read() &&
         std::ranges::all_of(readers_, [](const auto& r) { return r.second.snapshot; });
}

bool AgentCore::room_for(proto::Step step) const {
  return step <= std::max(std::min(target_.consumed(), step), target_.base().step) +
                     arena_.spec().kept_results;
}

void AgentCore::on_reader_progress(std::uint64_t reader,
                                   std::optional<TransferTarget::Received> has) {
  if (has)
    readers_[reader] = *has;
  else
    readers_.erase(reader);
}

AgentEffects AgentCore::on_fetch_failed(const std::string& why) {
  fetching_ = false;
  report_all(target_.break_off(arena_, why));
  return effects();
}

void AgentCore::stop_fetch() {
  if (std::exchange(fetching_, false)) emit(StopFetch{});
}

// The last learner may have been removed during the call.
AgentEffects AgentCore::effects() {
  if (!target_.active()) stop_fetch();
  return std::exchange(effects_, {});
}

// Runs before the World is published: afterwards its donors may overwrite the snapshot.
void AgentCore::on_world_in_transfer(const proto::World& world) {
  source_.on_world(arena_, world, snapshot_read());
  if (!target_.active()) return;
  if (source_is_local_) {
    if (!source_.broken().empty()) report_all(target_.break_off(arena_, source_.broken()));
    return;
  }
  if (target_.read() || std::ranges::none_of(world.members, &proto::WorldMember::needs_state))
    return;
  stop_fetch();
  report_all(target_.break_off(arena_, "the snapshot is needed for a member that does not learn"));
}

void AgentCore::end_transfer() {
  stop_fetch();
  if (!arena_.mapped()) return;
  target_.end(arena_);
  source_.end(arena_);
  readers_.clear();
}

}  // namespace regroup::membership
