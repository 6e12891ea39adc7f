// A rank that ended before MPI_Init is restarted alone, with the same rank. Once a rank has ended
// otherwise the World cannot continue, and RoleRules restarts the whole job.
#include "launcher/job/role_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <variant>

namespace regroup::job {

RoleWorld::RoleWorld(Options options, std::function<agent::Node&(std::uint32_t host)> node_of,
                     Events events)
    : options_(std::move(options)),
      node_of_(std::move(node_of)),
      events_(std::move(events)),
      host_of_(options_.host_of),
      places_(layout_ranks(options_.counts, 0, 0, 0, options_.host_of)),
      members_(places_.size()),
      exchange_(exchange_job()) {}

agent::HostExchange::Job RoleWorld::exchange_job() {
  const auto named = [this](std::uint32_t host, const std::string& why) {
    return fmt::format("host {}: {}", options_.hosts.at(host).name, why);
  };
  return {[this](std::uint32_t host) {
            return host < options_.hosts.size() ? &node_of_(host) : nullptr;
          },
          [this](pmi::ProcId process) {
            const bool here = process.space == space_ && process.rank < members_.size();
            return here ? std::optional(host_of(process.rank)) : std::nullopt;
          },
          [](std::uint32_t, std::uint32_t) { return false; },  // no others are met
          [this, named](std::uint32_t host, const std::string& why) {
            events_.said(named(host, why) + agent::HostExchange::kCutOff);
          },
          [this, named](std::uint32_t host, const std::string& why) {
            events_.failed({base::Code::kPeerLost, named(host, why)});
          }};
}

void RoleWorld::on_mpi(std::uint32_t host, const pmi::Message& message) {
  if (!exchange_.may_say(host, message)) return;
  if (const auto* connected = std::get_if<pmi::Connected>(&message)) {
    stands(connected->process, MemberEnd::Mpi::kInside);
    if (connected->process.space != space_) return;
    if (const auto why = init_.begun(connected->process.rank)) events_.init_stuck(*why);
  } else if (const auto* finalized = std::get_if<pmi::Finalized>(&message)) {
    stands(finalized->process, MemberEnd::Mpi::kLeft);
    if (finalized->process.space == space_) init_.finalized(finalized->process.rank);
  } else if (const auto* aborted = std::get_if<pmi::Aborted>(&message)) {
    if (aborted->process.space != space_ || aborted->process.rank >= members_.size()) return;
    members_[aborted->process.rank].abort = *aborted;
    events_.aborted(aborted->process.rank);
  } else if (const auto* spawn = std::get_if<pmi::Spawn>(&message)) {
    const std::string why = "MPI_Comm_spawn: not supported in a job of roles (--role)";
    events_.said(why);
    if (spawn->parent.rank < members_.size())
      node_of_(host_of(spawn->parent.rank)).tell(pmi::SpawnDone{spawn->request, 0, why});
  } else {
    exchange_.pass(host, message);
  }
}

void RoleWorld::stands(pmi::ProcId process, MemberEnd::Mpi standing) {
  if (process.space == space_ && process.rank < members_.size())
    members_[process.rank].standing = standing;
}

// MPI knows the member where it was, so space_on() keeps that.
void RoleWorld::move_to_first(std::uint32_t rank) {
  if (host_of(rank) == 0) return;
  process::Place& place = places_.at(rank);
  place.local_rank = static_cast<std::uint32_t>(std::ranges::count(host_of_, 0U));
  place.local_size = *place.local_rank + 1;
  place.host = 0;
  host_of_.at(rank) = 0;
}

bool RoleWorld::uses_mpi() const {
  return std::ranges::any_of(
      members_, [](const Member& member) { return member.standing != MemberEnd::Mpi::kNever; });
}

void RoleWorld::gone(std::uint32_t rank) {
  members_.at(rank).runs = false;
  const pmi::MemberGone gone{{members_[rank].space, rank}};
  node_of_(host_of(rank)).tell(gone);
  if (host_of(rank) != 0) node_of_(0).tell(gone);  // it keeps the published names
}

void RoleWorld::left(std::uint32_t rank, const std::string& how) {
  if (const auto why = init_.ended(rank, how)) events_.init_stuck(*why);
}

void RoleWorld::signal_all(int number) {
  for (std::uint32_t rank = 0; rank < members_.size(); ++rank) signal(rank, number);
}

pmi::OpenSpace RoleWorld::space_on(std::uint32_t host) const {
  const bool several = options_.hosts.size() > 1;
  std::uint32_t here = 0;
  for (std::uint32_t rank = 0; rank < members_.size(); ++rank)
    here += host_of(rank) == host ? 1 : 0;
  pmi::OpenSpace out;
  out.space = space_;
  out.host = host;
  out.app_sizes = options_.counts;
  out.bindings = options_.bindings;
  out.oversubscribed = options_.hosts[host].slots != 0 && here > options_.hosts[host].slots;
  for (const JobHost& one : options_.hosts) {
    out.slots += one.slots;
    if (several) out.hosts.push_back(one.name);
  }
  if (several) out.host_of = options_.host_of;
  return out;
}

agent::MemberOrder RoleWorld::order(std::uint32_t rank, const StartMember& start) {
  agent::MemberOrder out = events_.order_of(start);
  out.place = places_[rank];
  members_[rank].space = space_;
  members_[rank].runs = true;
  return out;
}

void RoleWorld::start(const StartMember& start) {
  Member& member = members_.at(start.rank);
  member.standing = MemberEnd::Mpi::kNever;
  member.abort.reset();
  if (!opened_) {
    member.waiting = start;
    if (std::ranges::all_of(members_, [](const Member& one) { return one.waiting.has_value(); }))
      open();
    return;
  }
  const std::uint32_t host = host_of(start.rank);
  node_of_(host).start({space_on(host), {order(start.rank, start)}, true});
}

std::vector<std::uint32_t> RoleWorld::renew() {
  ++space_;
  init_ = pmi::InitWatch();
  opened_ = false;
  std::vector<std::uint32_t> dropped;
  for (std::uint32_t rank = 0; rank < members_.size(); ++rank) {
    if (members_[rank].waiting) dropped.push_back(rank);
    members_[rank].waiting.reset();
    members_[rank].standing = MemberEnd::Mpi::kNever;
    members_[rank].abort.reset();
  }
  return dropped;
}

void RoleWorld::open() {
  opened_ = true;
  exchange_.restart();
  for (std::uint32_t host = 0; host < options_.hosts.size(); ++host) {
    if (space_ > 0) node_of_(host).tell(pmi::CloseSpace{space_ - 1});
    agent::SpaceOrder all{space_on(host), {}};
    for (std::uint32_t rank = 0; rank < members_.size(); ++rank) {
      if (host_of(rank) != host || has_moved(rank)) continue;
      all.members.push_back(order(rank, *std::exchange(members_[rank].waiting, std::nullopt)));
    }
    node_of_(host).start(std::move(all));
  }
  for (std::uint32_t rank = 0; rank < members_.size(); ++rank) {
    if (const auto moved = std::exchange(members_[rank].waiting, std::nullopt)) start(*moved);
  }
}

void RoleWorld::on_started(std::uint32_t space, const base::Status& status) {
  if (!status.ok()) return events_.failed(status);
  if (space == space_) return;
  for (std::uint32_t rank = 0; rank < members_.size();
       ++rank) {  // renew() came before they were there
    if (members_[rank].space == space) signal(rank, SIGKILL);
  }
}

}  // namespace regroup::job
