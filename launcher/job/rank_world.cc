// FixedSizeJob ends the job when a rank fails. This class makes the calls of the other ranks fail
// before that, and ends the World where the job would go on: after a rank that exits with status 0
// while others wait for it.
#include "launcher/job/rank_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <utility>
#include <variant>

#include "base/clock.h"
#include "base/status.h"
#include "launcher/job/elastic_agent_options.h"
#include "launcher/spec/job_spec.h"
#include "membership/coordinator/agent_facts.h"

namespace regroup::job {
namespace {

constexpr proto::NodeId kHere = 0;
constexpr proto::Incarnation kIncarnation = 1;

}  // namespace

std::uint32_t rank_slots(const std::vector<proto::NodeId>& placed, proto::NodeId host) {
  const auto ranks = static_cast<std::uint32_t>(std::ranges::count(placed, host));
  return std::clamp<std::uint32_t>(ranks, 1, proto::kMaxSlots - 1);
}

RankWorldOptions rank_world_options(const spec::JobSpec& spec, const std::string& job,
                                    const std::string& socket, std::vector<proto::NodeId> placed,
                                    const WorldStart& world) {
  RankWorldOptions out;
  const writer::CheckpointPlan& checkpoints = world.checkpoints;
  const auto size = static_cast<std::uint32_t>(placed.size());
  out.policy = {.min = 1,  // after a notice the last ones may stand at different steps
                .max = size,
                .target = size,
                .slots = size,
                .any_fingerprint = spec.any_fingerprint,
                .replace = false,
                .fixed = true,
                .shards = world.shards,
                .ready_timeout = spec.ready_timeout,
                .hang_timeout = spec.hang.timeout,
                .plane = spec.plane};
  if (checkpoints.resume) out.policy.resume = checkpoints.resume->step;
  out.job = {.id = job, .seed = world.seed, .nodes = placed};
  std::ranges::sort(out.job.nodes);
  out.job.nodes.erase(std::unique(out.job.nodes.begin(), out.job.nodes.end()), out.job.nodes.end());
  out.agent = elastic_agent_options(elastic_setup(spec, rank_slots(placed, kHere), world));
  out.job.placed = std::move(placed);
  out.agent.socket = socket;
  out.agent.quiet = spec.quiet;
  out.agent.fixed = true;
  return out;
}

void add_world_variables(const spec::JobSpec& spec, const WorldStart& world,
                         spec::Environment& environment) {
  if (world.shards != 0) environment["REGROUP_SHARDS"] = std::to_string(world.shards);
  if (world.seed != 0) environment["REGROUP_SEED"] = std::to_string(world.seed);
  if (spec.any_fingerprint) environment["REGROUP_CHECK_STATE"] = "0";
  writer::add_checkpoint_variables(world.checkpoints, environment);
}

RankWorld::RankWorld(agent::Agent& agent, RankWorldOptions options, agent::Hosts* hosts)
    : agent_(agent),
      policy_(options.policy),
      job_(std::move(options.job)),
      quiet_(options.agent.quiet),
      hosts_(hosts),
      local_(agent, std::move(options.agent),
             [this](const proto::Message& message) {
               boost::asio::post(agent_.loop(), [this, message] { on_agent(kHere, message); });
             }),
      timer_(agent.loop()) {
  if (hosts_ == nullptr) return;
  hosts_->set_elastic({.membership = [this](proto::NodeId node, const proto::Message& message) {
    membership::is_agent_message(message.body) ? on_agent(node, message) : refuse(node);
  }});
}

// An agent that sends messages about nodes, or messages of the coordinator, is lost.
void RankWorld::refuse(proto::NodeId node) {
  const auto index = hosts_->index_of(node);
  hosts_->give_up(node, base::invalid_argument(
                            fmt::format("host {}: its agent sent a message that it may not send",
                                        index ? hosts_->name(*index) : "?")));
}

bool RankWorld::runs(proto::NodeId node, proto::MemberId rank) const {
  return rank < job_.placed.size() && job_.placed[rank] == node;
}

void RankWorld::on_agent(proto::NodeId node, const proto::Message& message) {
  const auto* ready = std::get_if<proto::MemberReady>(&message.body);
  const auto* lost = std::get_if<proto::MemberLost>(&message.body);
  if (ready != nullptr && !runs(node, ready->join.member)) return;
  if (lost != nullptr && !runs(node, lost->member)) return;
  trained_.hear(message.body, agent_.ending());
  begin();
  if (ready != nullptr) joined_.insert(ready->join.member);
  if (!over_)
    perform(coordinator_->handle(base::SystemClock().now(),
                                 {membership::Sender::Kind::kAgent, node}, message));
  if (lost != nullptr && lost->reaped && lost->joined && !lost->finished)
    end(fmt::format("rank {} ended before finish(): the World of {} is over", lost->member,
                    policy_.max),
        1);
  if (unjoined_exit_) missing(*unjoined_exit_);
}

void RankWorld::begin() {
  if (coordinator_) return;
  coordinator_.emplace(policy_, job_, kIncarnation);
  perform(coordinator_->tick(base::SystemClock().now()));
}

// A failed rank ends the job, and its agent reports a joined rank to the coordinator. What remains
// is a rank that exits with status 0 without a join.
void RankWorld::on_exit(const process::MemberExit& exit) {
  const bool unjoined = exit.member < policy_.max && !joined_.contains(exit.member);
  if (exit.host.empty()) local_.on_exit(exit);
  if (!unjoined || !exit.normal() || unjoined_exit_) return;
  unjoined_exit_ = exit;
  if (coordinator_) missing(exit);
}

// Ends the World, since ranks that have joined would wait for this one for ever.
void RankWorld::missing(const process::MemberExit& exit) {
  if (over_ || joined_.empty()) return;
  end(fmt::format("rank {} {} {} without calling join(), for which {} of {} ranks wait", exit.rank,
                  exit.process(), exit.what(), joined_.size(), policy_.max),
      1);
}

// Only the first reason counts.
void RankWorld::end(const std::string& why, int exit_status) {
  if (std::exchange(over_, true)) return;
  const bool ending = agent_.ending();
  if (!ending) agent_.say(fmt::format("the job failed: {}", why));
  for (const proto::NodeId node : job_.nodes) tell(node, proto::JobDone{exit_status, why, false});
  if (!ending) agent_.terminate(exit_status);
}

// Members have got SIGTERM, and leave after they have applied their step.
void RankWorld::on_notice(base::TimePoint deadline) {
  local_.on_notice(deadline);
  if (!coordinator_ || over_) return;
  for (const proto::NodeId node : job_.nodes)
    perform(coordinator_->handle(base::SystemClock().now(), {},
                                 {kIncarnation, proto::NodeUp{node, "", 0}}));
}

void RankWorld::tell(proto::NodeId node, const proto::Body& body) {
  const proto::Message message{kIncarnation, body};
  if (node == kHere) return local_.on_message(message);
  if (hosts_ != nullptr) hosts_->tell_membership(node, message);
}

void RankWorld::perform(const membership::Effects& effects) {
  for (const membership::Effect& effect : effects) {
    std::visit([this](const auto& it) { perform_one(it); }, effect);
  }
  const auto next = coordinator_ && !over_ ? coordinator_->next_deadline() : std::nullopt;
  if (!next) {
    timer_.cancel();
    return;
  }
  timer_.expires_at(std::chrono::steady_clock::time_point(next->time_since_epoch()));
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error && !over_) perform(coordinator_->tick(base::SystemClock().now()));
  });
}

// Drops orders to start members: FixedSizeJob starts the ranks.
void RankWorld::perform_one(const membership::ToAgent& effect) {
  if (std::holds_alternative<proto::Start>(effect.body)) return;
  if (const auto* done = std::get_if<proto::JobDone>(&effect.body)) {
    if (done->exit_code > 0) return end(done->reason, done->exit_code);
    over_ = true;
    return;
  }
  if (effect.node != proto::kEveryNode) return tell(effect.node, effect.body);
  for (const proto::NodeId node : job_.nodes) tell(node, effect.body);
}

void RankWorld::perform_one(const membership::Say& effect) {
  if (quiet_ || over_ || agent_.ending() || effect.sentence == coordinator_->world().why) return;
  agent_.say(effect.sentence);
}

}  // namespace regroup::job
