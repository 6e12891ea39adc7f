// The members of this host as processes: those of an elastic job, which the agent starts; the ranks
// of a fixed-size job, which that job starts and ends; and those that have finished.
#include <fmt/format.h>

#include <utility>

#include "base/clock.h"
#include "launcher/job/elastic_agent.h"
#include "launcher/process/priority.h"

namespace regroup::job {

// Registers the ranks that run on this host, once the first rank of the job joins.
void ElasticAgent::know_ranks() {
  if (!options_.fixed || std::exchange(knows_ranks_, true)) return;
  process::prefer_promptness();
  for (const metrics::UsageTarget& rank : agent_.processes().usage_targets())
    perform(core_.handle({}, {1, proto::Start{.member = rank.member, .rank = rank.rank}}));
}

void ElasticAgent::perform_one(const membership::StartMember& effect) {
  if (agent_.ending() || options_.fixed) return;
  first_here_ = first_here_ || effect.start.rank == 0;
  if (mpi_ && !joined_any_) return mpi_->add(effect.start);
  start_member(effect.start, {});
}

void ElasticAgent::fail(const std::string& why) {
  failed_ = why;
  for (auto& [id, link] : links_) release(link);
  // A revoke interrupts ranks that are in a collective.
  const proto::Generation open = core_.arena().mapped() ? core_.arena().newest_world() : 0;
  if (open > 0) perform(core_.handle({}, {core_.incarnation(), proto::Revoke{open}}));
}

// A rank that is joining the World is released when it sends Ready.
void ElasticAgent::release(Link& link) {
  const auto owned = link.member ? watched_.find(*link.member) : watched_.end();
  if (owned == watched_.end() || core_.arena().member_slot(owned->second).finished.load() != 0)
    return;
  link.channel->send({core_.incarnation(), proto::Refused{failed_}});
  core_.release(owned->second);
}

// The process of a living member: the one that joined.
pid_t ElasticAgent::process_of(proto::MemberId member) const {
  const auto joined = joined_.find(member);
  return joined != joined_.end() ? joined->second.pid : agent_.processes().pid_of(member);
}

void ElasticAgent::poll_finished() {
  std::vector<FinishedWatch::Finished> living;
  for (const auto& [member, slot] : watched_) {
    const pid_t pid = process_of(member);
    if (pid != 0 && core_.arena().member_slot(slot).finished.load(std::memory_order_acquire) != 0)
      living.push_back({member, pid});
  }
  if (agent_.ending()) return;
  for (const std::string& text : finished_.look(base::SystemClock().now(), living))
    agent_.say(text);
}

std::optional<int> ElasticAgent::completed() const {
  return all_finished(core_.arena()) ? std::optional(finished_.status()) : std::nullopt;
}

}  // namespace regroup::job
