// What `regroup status` shows of a job.
#include <cmath>
#include <nlohmann/json.hpp>

#include "membership/coordinator/coordinator.h"
#include "membership/coordinator/stand_in.h"

namespace regroup::membership {
namespace {

using nlohmann::json;

// Of the transaction that the member is in, or was in last.
const char* phase_name(proto::Phase phase) {
  static constexpr const char* kPhases[] = {"none", "open", "committed", "closed"};
  return kPhases[static_cast<std::size_t>(phase)];
}

json member_json(const MemberInfo& r) {
  json out{{"id", r.id}, {"node", r.slot_id.node}, {"state", state_name(r.state)}};
  out["rank"] = r.rank >= 0 ? json(r.rank) : json(nullptr);
  out["step"] = r.step;
  out["loss"] = std::isfinite(r.loss) ? json(r.loss) : json(nullptr);
  out["finished"] = r.finished;
  out["phase"] = phase_name(r.word.phase);
  out["position"] = {{"step", r.word.position.step()}, {"region", r.word.position.section()}};
  out["reports"] = r.reports;
  if (r.leave_wanted) out["leave_wanted"] = true;
  return out;
}

json progress_json(const TrainingProgress& progress) {
  json out{
      {"step", progress.step}, {"members", progress.members}, {"generation", progress.generation}};
  const auto add = [&out](const char* name, const auto& value) {
    if (value) out[name] = *value;
  };
  add("loss", progress.loss);
  add("epoch", progress.epoch);
  add("epochs", progress.epochs);
  add("epoch_done", progress.epoch_done);
  add("steps_per_second", progress.steps_per_second);
  add("samples_per_second", progress.samples_per_second);
  add("seconds_left", progress.seconds_left);
  return out;
}

}  // namespace

// The loss is that of the member with the highest step, among several of the lowest rank: all
// report the same loss, or one does.
std::optional<TrainingProgress> Coordinator::progress(base::TimePoint now) const {
  if (stage_ == Stage::kHello || !meter_.has_seen_any()) return std::nullopt;
  TrainingProgress out = meter_.progress(now, declared_ ? declared_->plan : proto::TrainingPlan());
  out.members = world_.size();
  out.generation = world_.generation;
  const MemberInfo* best = nullptr;
  for (const proto::WorldMember& member : world_.members) {
    const MemberInfo* r = members_.find(member.id);
    if (r == nullptr || !std::isfinite(r->loss)) continue;
    if (best == nullptr || r->step > best->step) best = r;
  }
  if (best != nullptr) out.loss = best->loss;
  if (!held_.empty()) out.steps_per_second = out.samples_per_second = out.seconds_left = {};
  return out;
}

std::string Coordinator::status_json(base::TimePoint now) const {
  static constexpr const char* kStages[] = {
      "waiting for hosts", "hello", "starting", "relaunching", "steady", "regrouping", "done"};
  const auto seconds = [&](base::TimePoint at) {
    return std::chrono::duration<double>(at - began_).count();
  };
  const auto plane = carrier_lost_.empty() ? world_.plane : stand_in(*world_.plane);
  json out{{"job", job_.id},
           {"incarnation", incarnation_},
           {"generation", world_.generation},
           {"why", world_.why},
           {"plane", plane ? json(proto::name_of(*plane)) : json(nullptr)},
           {"plane_why", carrier_lost_.empty() ? world_.plane_why : carrier_lost_},
           {"size", world_.size()},
           {"min", policy_.min},
           {"max", policy_.max},
           {"target", size_.target()},
           {"slots", size_.capacity()},
           {"shards", policy_.shards},
           {"replace", policy_.replace},
           {"resume_step", world_.resume.step()},
           {"attempt", job_.attempt.number},
           {"preempted_before", job_.attempt.preempted},
           {"failed_before", job_.attempt.failed},
           {"killed_before", job_.attempt.killed},
           {"relaunches", launch_.restarts()},
           {"stage", kStages[static_cast<std::size_t>(stage_)]},
           {"held", held_},
           {"seconds", begun_ ? seconds(now) : 0.0}};
  out["members"] = json::array();
  proto::Step step = 0;
  for (const auto& [id, r] : members_.all()) {
    if (r.state >= MemberState::kLost) continue;
    out["members"].push_back(member_json(r));
    step = std::max(step, r.step);
  }
  out["step"] = step;
  if (const auto training = progress(now)) out["progress"] = progress_json(*training);
  out["nodes"] = json::array();
  for (const auto& [id, node] : nodes_.all()) {
    out["nodes"].push_back({{"id", id},
                            {"name", node.name},
                            {"slots", node.slots},
                            {"silent", suspicions_.is_silent(id)}});
  }
  out["refused_gpus"] = json::array();
  for (const RefusedDevice& one : refused_devices_.all) {
    out["refused_gpus"].push_back(
        {{"gpu", one.gpu}, {"node", one.node}, {"member", one.member}, {"why", one.why}});
  }
  out["round"] = nullptr;
  if (stage_ == Stage::kRegrouping) {
    out["round"] = {{"revoked", highest_}, {"waiting_for_nodes", round_.missing(nodes_)}};
  }
  out["history"] = json::array();
  for (const auto& [at, text] : outbox_.history())
    out["history"].push_back({{"at", seconds(at)}, {"why", text}});
  return out.dump(-1, ' ', false,
                  json::error_handler_t::replace);  // a member's text is whatever it is
}

}  // namespace regroup::membership
