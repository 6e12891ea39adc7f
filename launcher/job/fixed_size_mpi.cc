// Handles MPI events: from libpmix of this host, and from agents of other hosts after HostExchange
// has checked them.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <variant>

#include "base/status.h"
#include "launcher/job/fixed_size_job.h"
#include "launcher/pmi/mpi.h"
#include "launcher/spec/outer_place.h"
#include "proto/world.h"

namespace regroup::job {
namespace {

constexpr std::size_t kMostPrograms = 1024;  // in one MPI_Comm_spawn_multiple
constexpr int kInitHangs = 1;                // as Open MPI's mpirun

}  // namespace

agent::HostExchange::Job FixedSizeJob::exchange_job() {
  const auto named = [this](std::uint32_t host, const std::string& why) {
    return fmt::format("host {}: {}", options_.hosts.at(host).name, why);
  };
  return {
      [this](std::uint32_t host) { return host < options_.hosts.size() ? &node(host) : nullptr; },
      [this](pmi::ProcId process) {
        const Rank* rank = find(process);
        return rank == nullptr ? std::nullopt : std::optional(rank->host);
      },
      [this](std::uint32_t host, std::uint32_t space) { return lives_in(host, space); },
      [this, named](std::uint32_t host, const std::string& why) {
        agent_.say(named(host, why) + agent::HostExchange::kCutOff);
      },
      [this, named](std::uint32_t host, const std::string& why) {
        on_lost({base::Code::kPeerLost, named(host, why)});
      }};
}

void FixedSizeJob::on_mpi(std::uint32_t host, const pmi::Message& message) {
  if (!exchange_.may_say(host, message)) return;
  if (const auto* connected = std::get_if<pmi::Connected>(&message)) {
    on_connected(*connected);
  } else if (const auto* finalized = std::get_if<pmi::Finalized>(&message)) {
    if (Rank* rank = find(finalized->process)) {
      rank->inside = false;
      worlds_[finalized->process.space].init.finalized(finalized->process.rank);
    }
  } else if (const auto* aborted = std::get_if<pmi::Aborted>(&message)) {
    on_aborted(*aborted);
  } else if (const auto* connection = std::get_if<pmi::GroupsConnected>(&message)) {
    on_groups_connected(host, known(connection->spaces));
  } else if (const auto* disconnection = std::get_if<pmi::GroupsDisconnected>(&message)) {
    connected_groups_.disconnect(host, known(disconnection->spaces));
  } else if (const auto* spawn = std::get_if<pmi::Spawn>(&message)) {
    on_spawn(*spawn);
  } else {
    if (const auto* part = std::get_if<pmi::Contribute>(&message)) on_contribute(host, *part);
    if (!agent_.ending()) exchange_.pass(host, message);
  }
}

void FixedSizeJob::on_connected(const pmi::Connected& connected) {
  Rank* rank = find(connected.process);
  if (rank == nullptr) return;
  rank->inside = true;
  const std::uint32_t space = connected.process.space;
  const auto why = worlds_[space].init.begun(connected.process.rank);
  if (why) end_init(space, *why, kInitHangs);
}

// Each host contributes to the first barrier, or fence, of MPI_Init once all its ranks are in it.
void FixedSizeJob::on_contribute(std::uint32_t host, const pmi::Contribute& part) {
  if (!lives_in(host, part.space)) return;
  const bool pmi1 = part.key.starts_with(pmi::kPmi1Barrier);
  const auto why = worlds_[part.space].protocols.speaks(
      "host " + options_.hosts.at(host).name, pmi1 ? pmi::Protocol::kPmi1 : pmi::Protocol::kPmix);
  if (why) end_init(part.space, *why, kInitHangs);
}

void FixedSizeJob::end_init(std::uint32_t space, const std::string& why, int status) {
  if (agent_.ending() || worlds_[space].ending) return;
  end_group(space, why, "; all ranks of a job call MPI_Init of one MPI, or none does", status);
}

std::set<std::uint32_t> FixedSizeJob::known(const std::vector<std::uint32_t>& spaces) const {
  std::set<std::uint32_t> out;
  for (const std::uint32_t space : spaces) {
    if (worlds_.contains(space)) out.insert(space);
  }
  return out;
}

// A world may have failed before all hosts of the connected worlds reported the connection.
void FixedSizeJob::on_groups_connected(std::uint32_t host, const std::set<std::uint32_t>& spaces) {
  std::set<std::uint32_t> own;
  for (const std::uint32_t space : spaces) {
    if (host == 0 || lives_in(host, space)) own.insert(space);
  }
  connected_groups_.connect(host, spaces, own);
  const auto failed =
      std::ranges::find_if(spaces, [this](auto space) { return worlds_[space].ending; });
  if (failed == spaces.end() || agent_.ending()) return;
  const std::set<std::uint32_t> group = connected_groups_.group_of(*failed);
  if (std::ranges::all_of(group, [this](auto space) { return worlds_[space].ending; })) return;
  end_group(*failed,
            fmt::format("spawn {} failed while other processes are connected to it", *failed), "",
            status_);
}

bool FixedSizeJob::lives_in(std::uint32_t host, std::uint32_t space) const {
  const auto found = worlds_.find(space);
  return found != worlds_.end() && found->second.living_on.contains(host);
}

void FixedSizeJob::on_spawn(const pmi::Spawn& spawn) {
  const Rank* parent = find(spawn.parent);
  if (parent == nullptr || agent_.ending()) return;
  auto apps = spawned_apps(spawn, *parent);
  if (!apps.ok()) {
    agent_.say(
        fmt::format("{}: MPI_Comm_spawn: {}", pmi::name_of(spawn.parent), apps.status().message()));
    return node(parent->host).tell(pmi::SpawnDone{spawn.request, 0, apps.status().message()});
  }
  const auto first_app = static_cast<std::uint32_t>(apps_.size());
  std::vector<std::uint32_t> counts;
  for (std::size_t i = 0; i < apps->size(); ++i) {
    const auto number = static_cast<std::uint32_t>(apps_.size());
    for (std::uint32_t host = 0; host < options_.hosts.size(); ++host)
      node(host).add_app(number, (*apps)[i]);
    apps_.push_back(std::move((*apps)[i]));
    counts.push_back(spawn.apps[i].count);
  }
  connected_groups_.spawned(spawn.parent.space, spaces_);
  open_space(counts, first_app, hosts_for(std::accumulate(counts.begin(), counts.end(), 0U)),
             spawn);
}

base::Result<std::vector<process::App>> FixedSizeJob::spawned_apps(const pmi::Spawn& spawn,
                                                                   const Rank& parent) const {
  std::vector<process::App> apps;
  std::uint64_t size = 0;
  for (const pmi::SpawnApp& wanted : spawn.apps) size += wanted.count;
  if (size == 0 || spawn.apps.size() > kMostPrograms)
    return base::invalid_argument(
        fmt::format("expected at most {} programs with at least one process, got {} with {}",
                    kMostPrograms, spawn.apps.size(), size));
  if (living() + size > proto::kMaxMembers)
    return base::Status(
        base::Code::kResourceExhausted,
        fmt::format("{} more processes: expected at most {} in a job", size, proto::kMaxMembers));
  for (const pmi::SpawnApp& wanted : spawn.apps) {
    REGROUP_ASSIGN_OR_RETURN(auto app, pmi::spawned_app(apps_.at(parent.app), wanted));
    // The parent may have passed its own variables on.
    app.environment = spec::without_outer_place(std::move(app.environment));
    apps.push_back(std::move(app));
  }
  if (options_.most == 0 || living() + size <= options_.most) return apps;
  return base::Status(
      base::Code::kResourceExhausted,
      fmt::format("{} more processes, with {} of {} slots in use: --oversubscribe allows more",
                  size, living(), options_.most));
}

void FixedSizeJob::on_aborted(const pmi::Aborted& aborted) {
  const auto found = worlds_.find(aborted.process.space);
  if (agent_.ending() || found == worlds_.end() || found->second.ending) return;
  if (aborted.status == pmi::kInitCannotComplete)
    return end_init(aborted.process.space, aborted.message, kInitHangs);
  end_group(aborted.process.space,
            fmt::format("{} called MPI_Abort with status {}{}{}", pmi::name_of(aborted.process),
                        aborted.status, aborted.message.empty() ? "" : ": ", aborted.message),
            "", aborted.status & 0xff);
}

}  // namespace regroup::job
