// The rules of Open MPI: the first rank that ends abnormally decides the exit status. Those of MPICH's hydra
// where asked for: statuses are or'ed, a signal's is its number, and only a rank that dies inside MPI, or of
// a signal, ends the others.
#include "launcher/supervise/rigid_job.h"

#include <fmt/format.h>

#include <numeric>
#include <utility>

#include "launcher/options/outer_place.h"

namespace regroup::launcher {
namespace {

// Members of a space that begins with member `first`, in rank order.
std::vector<Place> places_of(const std::vector<std::uint32_t>& counts, core::MemberId first,
                             std::uint32_t first_app) {
  const std::uint32_t size = std::accumulate(counts.begin(), counts.end(), 0U);
  std::vector<Place> places;
  for (std::uint32_t app = 0; app < counts.size(); ++app) {
    for (std::uint32_t index = 0; index < counts[app]; ++index) {
      const auto rank = static_cast<std::uint32_t>(places.size());
      places.push_back({first + rank, rank, size, first_app + app, index});
    }
  }
  return places;
}

std::string name_of(pmi::Seat seat) {
  if (seat.space == 0) return fmt::format("rank {}", seat.rank);
  return fmt::format("rank {} of spawn {}", seat.rank, seat.space);
}

}  // namespace

RigidJob::RigidJob(Agent& agent, RigidOptions options) : agent_(agent), options_(std::move(options)) {}

pmi::MpiEvents RigidJob::events() {
  pmi::MpiEvents events;
  events.connected = [this](const pmi::Connected& connected) {
    if (Rank* rank = find(connected.seat)) rank->inside = true;
  };
  events.finalized = [this](const pmi::Finalized& finalized) {
    if (Rank* rank = find(finalized.seat)) rank->inside = false;
  };
  events.aborted = [this](const pmi::Aborted& aborted) { on_aborted(aborted); };
  events.spawn = [this](const pmi::Spawn& spawn) { on_spawn(spawn); };
  events.said = [this](const std::string& text) {
    if (!agent_.ending() && !options_.quiet) agent_.say(text);
  };
  return events;
}

core::Status RigidJob::start() {
  if (options_.helper) {
    mpi_ = std::make_unique<pmi::Mpi>(agent_.loop(), *options_.helper, agent_.crew().options().apps.at(0),
                                      events());
    open_space(options_.counts, 0, 0);
    return {};
  }
  const std::vector<Place> places = places_of(options_.counts, 0, 0);
  return start_space(spaces_++, places, std::vector<Extras>(places.size()));
}

void RigidJob::open_space(const std::vector<std::uint32_t>& counts, std::uint32_t first_app,
                          std::uint64_t request) {
  const std::vector<Place> places = places_of(counts, next_member_, first_app);
  next_member_ += static_cast<core::MemberId>(places.size());
  const bool oversubscribed = options_.slots != 0 && next_member_ > options_.slots;
  pmi::OpenSpace space{spaces_++, options_.slots, oversubscribed, counts, request, {}};
  if (space.space == 0) space.bindings = options_.bindings;
  ++starting_;
  mpi_->open(space, [this, number = space.space, request, places](std::vector<Extras> extras) {
    --starting_;
    if (agent_.ending()) return;
    const core::Status status = start_space(number, places, std::move(extras));
    if (request != 0) mpi_->spawn_done({request, number, status.message()});
    if (status.ok()) return;
    agent_.fail_start(status.message());
  });
}

core::Status RigidJob::start_space(std::uint32_t space, const std::vector<Place>& places,
                                   std::vector<Extras> extras) {
  for (std::size_t i = 0; i < places.size(); ++i) {
    const Place& place = places[i];
    const pmi::Seat seat{space, place.rank};
    ranks_[place.member] = {seat, place.app};
    if (space == 0 && place.rank < options_.cores.size()) extras[i].cores = options_.cores[place.rank];
    if (space == 0 && place.rank < options_.threads.size()) extras[i].threads = options_.threads[place.rank];
    add_hints(extras[i], agent_.crew().options().apps.at(place.app));
    if (core::Status status = agent_.crew().start(place, std::move(extras[i])); !status.ok()) {
      return {status.code(), fmt::format("{} could not be started: {}", name_of(seat), status.message())};
    }
  }
  agent_.release_port();
  return {};
}

void RigidJob::add_hints(Extras& extras, const App& app) const {
  if (options_.slots != 0 && next_member_ > options_.slots) pmi::add_yield_hints(extras, app);
}

void RigidJob::on_spawn(const pmi::Spawn& spawn) {
  const Rank* parent = find(spawn.parent);
  if (parent == nullptr || agent_.ending()) return;
  const App base = agent_.crew().options().apps.at(parent->app);
  std::vector<std::uint32_t> counts;
  std::uint32_t first_app = 0;
  for (const pmi::SpawnApp& wanted : spawn.apps) {
    auto app = pmi::spawned_app(base, wanted);
    if (!app.ok()) {
      agent_.say(fmt::format("{}: MPI_Comm_spawn: {}", name_of(spawn.parent), app.status().message()));
      return mpi_->spawn_done({spawn.request, 0, app.status().message()});
    }
    app->environment = without_outer_place(std::move(app->environment));  // its parent may have sent its own
    const std::uint32_t number = agent_.crew().add_app(std::move(*app));
    if (counts.empty()) first_app = number;
    counts.push_back(wanted.count);
  }
  open_space(counts, first_app, spawn.request);
}

void RigidJob::on_aborted(const pmi::Aborted& aborted) {
  if (agent_.ending()) return;
  agent_.say(fmt::format("{} called MPI_Abort with status {}: ending the job{}{}", name_of(aborted.seat),
                         aborted.status, aborted.message.empty() ? "" : ": ", aborted.message));
  agent_.terminate(aborted.status & 0xff);
}

void RigidJob::on_exit(const MemberExit& exit) {
  if (mpi_) mpi_->settle();
  if (agent_.ending()) return;
  const Rank rank = ranks_[exit.member];
  const bool others = agent_.crew().running() > 0 || starting_ > 0;
  if (decides(exit, rank)) {
    // As Open MPI 5 with --with-ft: a signal never decides the status, an exit code always does.
    if (!options_.fault_tolerant || exit.signal == 0) return end(exit, rank);
    if (others)
      agent_.say(fmt::format("{} (pid {}) {}: the others go on", name_of(rank.seat), exit.pid, exit.what()));
    if (mpi_) mpi_->member_gone({rank.seat, exit.code, exit.signal});
  } else if (options_.compat == Compat::kMpich) {
    status_ |= exit.code;
  }
  if (!others) agent_.terminate(status_);
}

// Its end is the end of the job.
bool RigidJob::decides(const MemberExit& exit, const Rank& rank) const {
  if (exit.signal != 0 || rank.inside) return true;
  return exit.code != 0 && options_.compat == Compat::kOpenMpi;
}

void RigidJob::end(const MemberExit& exit, const Rank& rank) {
  const bool early = exit.signal == 0 && rank.inside;
  const bool by_itself = exit.signal == 0 && !early;  // why, its program knows: name that
  agent_.say(fmt::format("{} (pid {}) {}{}{}{}", name_of(rank.seat), exit.pid, exit.what(),
                         early ? " before it called MPI_Finalize" : "",
                         agent_.crew().running() > 0 ? ": ending the other ranks" : "",
                         by_itself ? "; it ran " + shown(agent_.crew().options().apps.at(rank.app)) : ""));
  if (options_.compat == Compat::kMpich) return agent_.terminate(exit.signal != 0 ? exit.signal : exit.code);
  agent_.terminate(early && exit.code == 0 ? 1 : exit.status());
}

RigidJob::Rank* RigidJob::find(pmi::Seat seat) {
  for (auto& [member, rank] : ranks_) {
    if (rank.seat == seat) return &rank;
  }
  return nullptr;
}

}  // namespace regroup::launcher
