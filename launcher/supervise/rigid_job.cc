// The rules of Open MPI 5: the first rank that ends abnormally decides the exit status, and ends all that its
// world has not disconnected from. Those of MPICH's hydra where asked for: statuses are or'ed, a signal's is
// its number, and only a rank that dies inside MPI, or of a signal, ends the others.
#include "launcher/supervise/rigid_job.h"

#include <fmt/format.h>

#include <csignal>
#include <numeric>
#include <utility>

#include "launcher/options/outer_place.h"

namespace regroup::launcher {
namespace {

// Members of a space that begins with member `first`, in rank order.
std::vector<Place> places_of(const std::vector<std::uint32_t>& counts, core::MemberId first,
                             std::uint32_t first_app, std::uint32_t space) {
  const std::uint32_t size = std::accumulate(counts.begin(), counts.end(), 0U);
  std::vector<Place> places;
  for (std::uint32_t app = 0; app < counts.size(); ++app) {
    for (std::uint32_t index = 0; index < counts[app]; ++index) {
      const auto rank = static_cast<std::uint32_t>(places.size());
      places.push_back({first + rank, rank, size, first_app + app, index, space});
    }
  }
  return places;
}

std::string name_of(pmi::Seat seat) {
  if (seat.space == 0) return fmt::format("rank {}", seat.rank);
  return fmt::format("rank {} of spawn {}", seat.rank, seat.space);
}

}  // namespace

RigidJob::RigidJob(Agent& agent, RigidOptions options)
    : agent_(agent), options_(std::move(options)), seats_(options_.cores.size()) {}

pmi::MpiEvents RigidJob::events() {
  pmi::MpiEvents events;
  events.connected = [this](const pmi::Connected& connected) {
    if (Rank* rank = find(connected.seat)) rank->inside = true;
  };
  events.finalized = [this](const pmi::Finalized& finalized) {
    if (Rank* rank = find(finalized.seat)) rank->inside = false;
  };
  events.aborted = [this](const pmi::Aborted& aborted) { on_aborted(aborted); };
  events.met = [this](const pmi::Met& met) { families_.met({met.spaces.begin(), met.spaces.end()}); };
  events.parted = [this](const pmi::Parted& parted) {
    families_.parted({parted.spaces.begin(), parted.spaces.end()});
  };
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
  const std::vector<Place> places = places_of(options_.counts, 0, 0, 0);
  worlds_[spaces_++].living = static_cast<std::uint32_t>(places.size());
  return start_space(0, places, take_seats(places), std::vector<Extras>(places.size()));
}

std::uint32_t RigidJob::living() const {
  return std::accumulate(worlds_.begin(), worlds_.end(), 0U,
                         [](std::uint32_t sum, const auto& entry) { return sum + entry.second.living; });
}

void RigidJob::open_space(const std::vector<std::uint32_t>& counts, std::uint32_t first_app,
                          std::uint64_t request) {
  const std::uint32_t number = spaces_++;
  const std::vector<Place> places = places_of(counts, next_member_, first_app, number);
  const auto size = static_cast<std::uint32_t>(places.size());
  next_member_ += size;
  worlds_[number] = {size, first_app, static_cast<std::uint32_t>(counts.size())};
  pmi::OpenSpace space{number, options_.slots, crowded(), counts, request, {}};
  const std::vector<std::size_t> seats = take_seats(places);
  for (const std::size_t seat : seats) {
    if (seat < options_.bindings.size()) space.bindings.push_back(options_.bindings[seat]);
  }
  ++starting_;
  mpi_->open(space, [this, number, request, places, seats](std::vector<Extras> extras) {
    --starting_;
    if (agent_.ending()) return;
    const core::Status status = start_space(number, places, seats, std::move(extras));
    if (request != 0) mpi_->spawn_done({request, number, status.message()});
    if (status.ok()) return;
    agent_.fail_start(status.message());
  });
}

std::vector<std::size_t> RigidJob::take_seats(const std::vector<Place>& places) {
  std::vector<std::size_t> seats;
  if (places.at(0).space > 0 && places.size() > seats_.free()) return seats;
  for (const Place& place : places) {
    if (const auto seat = seats_.take(place.member)) seats.push_back(*seat);
  }
  return seats;
}

core::Status RigidJob::start_space(std::uint32_t space, const std::vector<Place>& places,
                                   const std::vector<std::size_t>& seats, std::vector<Extras> extras) {
  for (std::size_t i = 0; i < places.size(); ++i) {
    const Place& place = places[i];
    const pmi::Seat seat{space, place.rank};
    ranks_[place.member] = {seat, place.app};
    if (!seats.empty()) extras[i].cores = options_.cores.at(seats[i]);
    if (space == 0 && place.rank < options_.threads.size()) extras[i].threads = options_.threads[place.rank];
    if (crowded()) pmi::add_yield_hints(extras[i], agent_.crew().options().apps.at(place.app));
    if (core::Status status = agent_.crew().start(place, std::move(extras[i])); !status.ok()) {
      return {status.code(), fmt::format("{} could not be started: {}", name_of(seat), status.message())};
    }
  }
  agent_.release_port();
  if (worlds_[space].ending) end_alone(space);  // its parent failed meanwhile
  return {};
}

bool RigidJob::crowded() const { return options_.slots != 0 && living() > options_.slots; }

core::Result<std::vector<App>> RigidJob::spawned_apps(const pmi::Spawn& spawn, const App& parent) const {
  std::vector<App> apps;
  std::uint32_t size = 0;
  for (const pmi::SpawnApp& wanted : spawn.apps) {
    auto app = pmi::spawned_app(parent, wanted);
    if (!app.ok()) return app.status();
    app->environment = without_outer_place(std::move(app->environment));  // its parent may have sent its own
    apps.push_back(std::move(*app));
    size += wanted.count;
  }
  if (options_.most == 0 || living() + size <= options_.most) return apps;
  return core::Status(core::Code::kResourceExhausted,
                      fmt::format("{} more, with {} of {} slots taken: more members need --oversubscribe",
                                  size, living(), options_.most));
}

void RigidJob::on_spawn(const pmi::Spawn& spawn) {
  const Rank* parent = find(spawn.parent);
  if (parent == nullptr || agent_.ending()) return;
  auto apps = spawned_apps(spawn, agent_.crew().options().apps.at(parent->app));
  if (!apps.ok()) {
    agent_.say(fmt::format("{}: MPI_Comm_spawn: {}", name_of(spawn.parent), apps.status().message()));
    return mpi_->spawn_done({spawn.request, 0, apps.status().message()});
  }
  const auto first_app = static_cast<std::uint32_t>(agent_.crew().options().apps.size());
  std::vector<std::uint32_t> counts;
  for (std::size_t i = 0; i < apps->size(); ++i) {
    agent_.crew().add_app(std::move((*apps)[i]));
    counts.push_back(spawn.apps[i].count);
  }
  families_.spawned(spawn.parent.space, spaces_);
  open_space(counts, first_app, spawn.request);
}

void RigidJob::on_aborted(const pmi::Aborted& aborted) {
  if (agent_.ending() || worlds_[aborted.seat.space].ending) return;
  end_family(aborted.seat.space,
             fmt::format("{} called MPI_Abort with status {}{}{}", name_of(aborted.seat), aborted.status,
                         aborted.message.empty() ? "" : ": ", aborted.message),
             "", aborted.status & 0xff);
}

void RigidJob::on_exit(const MemberExit& exit) {
  if (mpi_) mpi_->settle();
  if (agent_.ending()) return;
  const Rank rank = ranks_[exit.member];
  const bool decided = decides(exit, rank);
  // As Open MPI 5 with --with-ft: a signal never decides the status, an exit code always does.
  const bool survived = decided && options_.fault_tolerant && exit.signal != 0;
  if (mpi_) mpi_->member_gone({rank.seat, exit.code, exit.signal, survived});
  if (decided && !survived) {
    end(exit, rank);
  } else if (survived && (agent_.crew().running() > 0 || starting_ > 0)) {
    agent_.say(fmt::format("{} (pid {}) {}: the others go on", name_of(rank.seat), exit.pid, exit.what()));
  } else if (options_.compat == Compat::kMpich) {
    status_ |= exit.code;
  }
  leave(exit.member);
  if (agent_.crew().running() == 0 && starting_ == 0) agent_.terminate(status_);
}

// Its end is the end of its world.
bool RigidJob::decides(const MemberExit& exit, const Rank& rank) {
  if (worlds_[rank.seat.space].ending) return false;
  if (exit.signal != 0 || rank.inside) return true;
  return exit.code != 0 && options_.compat == Compat::kOpenMpi;
}

void RigidJob::end(const MemberExit& exit, const Rank& rank) {
  const bool early = exit.signal == 0 && rank.inside;
  const std::string said = fmt::format("{} (pid {}) {}{}", name_of(rank.seat), exit.pid, exit.what(),
                                       early ? " before it called MPI_Finalize" : "");
  const bool by_itself = exit.signal == 0 && !early;  // why, its program knows: name that
  const std::string what =
      by_itself ? "; it ran " + shown(agent_.crew().options().apps.at(rank.app)) : std::string();
  const bool hydra = options_.compat == Compat::kMpich;
  const int status = hydra                     ? (exit.signal != 0 ? exit.signal : exit.code)
                     : early && exit.code == 0 ? 1
                                               : exit.status();
  end_family(rank.seat.space, said, what, status);
}

void RigidJob::end_family(std::uint32_t space, const std::string& said, const std::string& more, int status) {
  const std::set<std::uint32_t> family = families_.of(space);
  if (family.contains(0)) {
    agent_.say(said + (agent_.crew().running() > 0 ? ": ending the other ranks" : "") + more);
    return agent_.terminate(status);
  }
  agent_.say(said + ": what has disconnected from it goes on" + more);
  if (status_ == 0) status_ = status;
  for (const std::uint32_t one : family) end_alone(one);
}

void RigidJob::end_alone(std::uint32_t space) {
  const auto found = worlds_.find(space);
  if (found == worlds_.end()) return;
  World& world = found->second;
  world.ending = true;
  signal_world(space, SIGTERM);
  signal_world(space, SIGCONT);  // a stopped member sees SIGTERM only then
  world.grace = std::make_unique<boost::asio::steady_timer>(
      agent_.loop(), std::chrono::duration_cast<std::chrono::steady_clock::duration>(options_.term_grace));
  world.grace->async_wait([this, space](const boost::system::error_code& error) {
    if (!error) signal_world(space, SIGKILL);
  });
}

void RigidJob::signal_world(std::uint32_t space, int signal) {
  for (const auto& [member, rank] : ranks_) {
    if (rank.seat.space == space) agent_.crew().signal(member, signal);
  }
}

void RigidJob::leave(core::MemberId member) {
  seats_.leave(member);
  const auto found = ranks_.find(member);
  if (found == ranks_.end()) return;
  const std::uint32_t space = found->second.seat.space;
  ranks_.erase(found);
  World& world = worlds_[space];
  if (--world.living > 0 || space == 0) return;
  for (std::uint32_t app = 0; app < world.apps; ++app) agent_.crew().drop_app(world.first_app + app);
  worlds_.erase(space);
  families_.closed(space);
  if (mpi_) mpi_->close(space);
}

RigidJob::Rank* RigidJob::find(pmi::Seat seat) {
  for (auto& [member, rank] : ranks_) {
    if (rank.seat == seat) return &rank;
  }
  return nullptr;
}

}  // namespace regroup::launcher
