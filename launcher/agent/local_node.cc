// Members start when regroup-pmi is ready for them, or at once without it.
#include "launcher/agent/local_node.h"

#include <fmt/format.h>

#include <boost/asio/post.hpp>
#include <utility>

#include "base/status.h"
#include "launcher/process/environment.h"

namespace regroup::agent {
namespace {

pmi::ProcId first_process(const SpaceOrder& order) {
  return {order.space.space, order.members.empty() ? 0 : order.members[0].place.rank};
}

}  // namespace

LocalNode::LocalNode(Agent& agent, std::optional<pmi::HelperOptions> helper, NodeEvents events)
    : agent_(agent), helper_(std::move(helper)), events_(std::move(events)) {}

void LocalNode::add_app(std::uint32_t number, const process::App& app) {
  process::App found = app;
  missing_.erase(number);
  if (app.path.empty()) {
    auto path = process::find_member_program(app.argv.at(0), app.wdir, app.environment);
    if (path.ok()) found.path = std::move(*path);
    if (!path.ok()) missing_[number] = path.status();
    if (base::Status folder = process::check_wdir(app.wdir); !folder.ok())
      missing_[number] = std::move(folder);
  }
  agent_.processes().set_app(number, std::move(found));
}

base::Status LocalNode::missing(std::uint32_t number) const {
  const auto found = missing_.find(number);
  return found == missing_.end() ? base::Status() : found->second;
}

void LocalNode::drop_app(std::uint32_t number) {
  missing_.erase(number);
  agent_.processes().set_app(number, {});
}

void LocalNode::signal(proto::MemberId member, int signal) {
  agent_.processes().signal(member, signal);
}

void LocalNode::signal_all(int signal) {
  agent_.signal_members(signal);
  for (auto& [process, signals] : early_) signals.push_back(signal);
}

void LocalNode::settle() {
  if (mpi_) mpi_->settle();
  tell_aborted(false);
}

void LocalNode::tell(const pmi::Message& message) {
  if (mpi_) {
    mpi_->tell(message);
  } else if (const auto answer = pmi::not_found(message)) {
    events_.mpi(0, *answer);
  }
  if (const auto* closed = std::get_if<pmi::CloseSpace>(&message))
    std::erase_if(members_, [&](const auto& entry) { return entry.first.space == closed->space; });
}

// Ranks of Open MPI call MPI_Abort when they see the connection of a failing rank close, a moment
// before that rank can be reaped here. So exiting members are reaped first, and the rank that
// failed first is reported first.
void LocalNode::on_aborted(const pmi::Aborted& aborted) {
  aborted_.push_back(aborted);
  boost::asio::post(agent_.loop(), [this] {
    if (aborted_.empty()) return;
    const auto found = members_.find(aborted_.front().process);
    if (found != members_.end()) agent_.processes().reap_exiting(found->second);
    tell_aborted(true);
  });
}

// `all` false: reports only aborts of members that have ended, whose exit is reported next.
void LocalNode::tell_aborted(bool all) {
  for (std::size_t i = 0; i < aborted_.size();) {
    const auto found = members_.find(aborted_[i].process);
    const bool runs = found != members_.end() && agent_.processes().pid_of(found->second) != 0;
    if (runs && !all) {
      ++i;
      continue;
    }
    const pmi::Aborted aborted = aborted_[i];
    aborted_.erase(aborted_.begin() + static_cast<std::ptrdiff_t>(i));
    events_.mpi(0, aborted);
  }
}

pmi::MpiEvents LocalNode::mpi_events() {
  pmi::MpiEvents events;
  events.connected = [this](const pmi::Connected& connected) { events_.mpi(0, connected); };
  events.finalized = [this](const pmi::Finalized& finalized) { events_.mpi(0, finalized); };
  events.aborted = [this](const pmi::Aborted& aborted) { on_aborted(aborted); };
  events.groups_connected = [this](const pmi::GroupsConnected& connection) {
    events_.mpi(0, connection);
  };
  events.groups_disconnected = [this](const pmi::GroupsDisconnected& disconnection) {
    events_.mpi(0, disconnection);
  };
  events.spawn = [this](const pmi::Spawn& spawn) { events_.mpi(0, spawn); };
  events.exchange = [this](const pmi::Message& message) { events_.mpi(0, message); };
  events.said = events_.said;
  return events;
}

// regroup-pmi runs with the libpmix of the first program.
void LocalNode::start(SpaceOrder order) {
  early_[first_process(order)];
  boost::asio::post(agent_.loop(), [this, order = std::move(order)] {
    if (agent_.ending()) return;
    if (helper_ && !mpi_) {
      const process::App& first = agent_.processes().options().apps.at(0);
      mpi_ = std::make_unique<pmi::Mpi>(agent_.loop(), *helper_, first, mpi_events());
    }
    open(order);
  });
}

void LocalNode::open(const SpaceOrder& order) {
  for (const MemberOrder& member : order.members) {
    const base::Status why = missing(member.place.app);
    if (!why.ok()) return events_.started(order.space.space, why);
  }
  const pmi::OpenSpace& space = order.space;
  const bool known =  // to MPI, which knows no member that ran on another host before
      !order.again || order.members.empty() || space.here(order.members.front().place.rank);
  if (!mpi_ || !known)
    return events_.started(
        space.space, start_members(order, std::vector<process::Extras>(order.members.size())));
  if (order.again) return reopen(order);
  mpi_->open(space, [this, order](std::vector<process::Extras> extras) {
    if (!agent_.ending())
      events_.started(order.space.space, start_members(order, std::move(extras)));
  });
}

void LocalNode::reopen(const SpaceOrder& order) {
  mpi_->reopen({order.space.space, order.members.at(0).place.rank},
               [this, order](process::Extras extras) {
                 if (agent_.ending()) return;
                 std::vector<process::Extras> one;
                 one.push_back(std::move(extras));
                 events_.started(order.space.space, start_members(order, std::move(one)));
               });
}

base::Status LocalNode::start_members(const SpaceOrder& order,
                                      std::vector<process::Extras> extras) {
  for (std::size_t i = 0; i < order.members.size(); ++i) {
    const auto& [place, threads, cores, environment] = order.members[i];
    extras[i].threads = threads;
    extras[i].cores = cores;
    extras[i].environment.insert(environment.begin(), environment.end());
    if (mpi_ || order.space.oversubscribed)
      pmi::add_hints(extras[i], agent_.processes().options().apps.at(place.app),
                     order.space.oversubscribed);
    if (base::Status status = agent_.processes().start(place, std::move(extras[i])); !status.ok()) {
      return base::unavailable(fmt::format("{} could not be started: {}",
                                           pmi::name_of({place.space, place.rank}),
                                           status.message()));
    }
    members_[{place.space, place.rank}] = place.member;
  }
  const auto early = early_.extract(first_process(order));
  for (const int signal : early.empty() ? std::vector<int>() : early.mapped()) {
    for (const MemberOrder& member : order.members)
      agent_.processes().signal(member.place.member, signal);
  }
  agent_.release_port();
  return {};
}

}  // namespace regroup::agent
