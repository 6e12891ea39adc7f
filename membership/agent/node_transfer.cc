// Implements docs/design/catch_up.md. The order in poll(): first poll the source, since its end
// also ends its learners on this node; then publish what was fetched; then read the learners'
// progress, which may include everything published so far. The order in on_world(): the source
// decides about the snapshot, then the target follows.
#include "membership/agent/node_transfer.h"

#include <algorithm>
#include <utility>

namespace regroup::membership {
namespace {

void report_targets(const std::vector<proto::TargetStatus>& news, AgentEffects* out) {
  for (const proto::TargetStatus& status : news) out->emplace_back(ToCoordinator{status});
}

}  // namespace

AgentEffects NodeTransfer::start_source(const proto::StartSource& order, const shmem::Arena& arena,
                                        const proto::World& world, bool over) {
  AgentEffects out;
  proto::SourceStatus answer{order.transfer, order.step, endpoints_, ""};
  readers_.clear();
  stop_fetch(&out);
  if (!arena.mapped() || over) {
    answer.why = "the generation is over on this node";
  } else {
    const auto step = source_.begin(arena, {order.transfer, order.step}, world);
    if (step.ok())
      answer.step = *step;
    else
      answer.why = step.status().message();
  }
  out.emplace_back(ToCoordinator{std::move(answer)});
  return out;
}

AgentEffects NodeTransfer::start_target(const proto::StartTarget& order,
                                        const std::vector<TransferTarget::LearnerSlot>& learners,
                                        const shmem::Arena& arena) {
  AgentEffects out;
  stop_fetch(&out);
  target_.end(arena);
  if (learners.empty()) return out;
  target_.begin({order.transfer, order.step}, learners);
  fetched_ = {.snapshot = false, .kept_up_to = order.step, .newest = order.step};
  published_ = order.step;
  const bool local = std::ranges::any_of(
      order.sources, [this](const proto::SourceAgent& source) { return source.node == node_; });
  origin_ = local ? Origin::kLocal : Origin::kNone;
  if (local && source_.active() && source_.base() == target_.base()) return out;
  if (local || order.sources.empty() || arena.spec().kept_results == 0) {
    report_targets(target_.break_off(arena, "its node cannot fetch the state"), &out);
    return out;
  }
  if (snapshot_in_use(arena)) {
    report_targets(target_.break_off(arena, "the snapshot is in use"), &out);
    return out;
  }
  origin_ = Origin::kFetched;
  out.emplace_back(Fetch{order});
  return out;
}

AgentEffects NodeTransfer::poll(const shmem::Arena& arena, const proto::World& world, bool* more) {
  AgentEffects out;
  const bool local = origin_ == Origin::kLocal;
  *more = source_.poll(arena, consumed());
  if (!source_.broken().empty()) {
    const std::string why = source_.broken();
    const proto::TransferStep mark = source_.base();
    source_.end(arena);
    out.emplace_back(ToCoordinator{proto::SourceStatus{mark.transfer, mark.step, endpoints_, why}});
    if (local) report_targets(target_.break_off(arena, why), &out);
  }
  if (!target_.active()) return out;
  for (proto::Step step = published_ + 1; !local && step <= fetched_.kept_up_to; ++step)
    arena.kept_step(step).store(step, std::memory_order_release);
  published_ = fetched_.kept_up_to;
  const TransferTarget::Received received =
      local ? TransferTarget::Received{source_.snapshot_complete(), source_.kept_up_to(),
                                       source_.kept_up_to()}
            : fetched_;
  report_targets(target_.poll(arena, received, world), &out);
  return out;
}

AgentEffects NodeTransfer::on_world(const shmem::Arena& arena, const proto::World& world) {
  AgentEffects out;
  source_.on_world(arena, world, snapshot_read());
  if (!target_.active()) return out;
  if (origin_ == Origin::kLocal) {
    if (!source_.broken().empty()) report_targets(target_.break_off(arena, source_.broken()), &out);
    return out;
  }
  if (target_.read() || std::ranges::none_of(world.members, &proto::WorldMember::needs_state))
    return out;
  stop_fetch(&out);
  report_targets(
      target_.break_off(arena, "the snapshot is needed for a member that does not learn"), &out);
  return out;
}

AgentEffects NodeTransfer::on_fetch_failed(const shmem::Arena& arena, const std::string& why) {
  AgentEffects out;
  if (origin_ == Origin::kFetched) origin_ = Origin::kNone;
  report_targets(target_.break_off(arena, why), &out);
  return out;
}

std::optional<StopFetch> NodeTransfer::stop_idle_fetch() {
  if (target_.active() || origin_ != Origin::kFetched) return std::nullopt;
  origin_ = Origin::kNone;
  return StopFetch{};
}

AgentEffects NodeTransfer::end(const shmem::Arena& arena) {
  AgentEffects out;
  stop_fetch(&out);
  if (!arena.mapped()) return out;
  target_.end(arena);
  source_.end(arena);
  readers_.clear();
  return out;
}

void NodeTransfer::stop_fetch(AgentEffects* out) {
  if (origin_ != Origin::kFetched) return;
  origin_ = Origin::kNone;
  out->emplace_back(StopFetch{});
}

// The step up to which results may leave the ring, since every reader, here and elsewhere, has
// them.
proto::Step NodeTransfer::consumed() const {
  const bool here = origin_ == Origin::kLocal && target_.active();
  if (!here && readers_.empty())
    return source_.base().step;  // targets on other nodes are still connecting
  proto::Step least = here ? target_.consumed() : source_.kept_up_to();
  for (const auto& [reader, has] : readers_) least = std::min(least, has.kept_up_to);
  return std::min(least, source_.kept_up_to());
}

bool NodeTransfer::snapshot_read() const {
  return target_.read() &&
         std::ranges::all_of(readers_, [](const auto& r) { return r.second.snapshot; });
}

bool NodeTransfer::room_for(proto::Step step, const shmem::Arena& arena) const {
  return step <= std::max(std::min(target_.consumed(), step), target_.base().step) +
                     arena.spec().kept_results;
}

void NodeTransfer::on_reader_progress(std::uint64_t reader,
                                      std::optional<TransferTarget::Received> has) {
  if (has)
    readers_[reader] = *has;
  else
    readers_.erase(reader);
}

}  // namespace regroup::membership
