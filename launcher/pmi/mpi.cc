// Keeps a job independent of regroup-pmi: each open() is answered even if regroup-pmi dies or
// hangs.
#include "launcher/pmi/mpi.h"

#include <fmt/format.h>

#include <csignal>
#include <numeric>
#include <utility>

#include "base/status.h"
#include "launcher/process/environment.h"

namespace regroup::pmi {
namespace {

constexpr const char* kWithout = "MPI programs get no PMI services";

void add_variable(spec::Environment& environment, const std::string& variable) {
  const std::size_t equals = variable.find('=');
  if (equals != std::string::npos)
    environment[variable.substr(0, equals)] = variable.substr(equals + 1);
}

}  // namespace

void add_hints(process::Extras& extras, const process::App& app, bool oversubscribed) {
  const auto hint = [&](const char* name) {
    if (!app.environment.contains(name)) extras.environment.emplace(name, "1");
  };
  if (oversubscribed)
    hint("OMPI_MCA_mpi_yield_when_idle");  // MPICH's POLLS_BEFORE_YIELD changed nothing
  hint("MPIR_CVAR_PMI_VERSION");  // MPICH 5 refuses to choose where it sees PMIx beside PMI-1
}

std::string name_of(ProcId process) {
  if (process.space == 0) return fmt::format("rank {}", process.rank);
  return fmt::format("rank {} of spawn {}", process.rank, process.space);
}

base::Result<process::App> spawned_app(const process::App& parent, const SpawnApp& wanted) {
  process::App app = parent;
  app.argv = {wanted.command};
  app.argv.insert(app.argv.end(), wanted.arguments.begin(), wanted.arguments.end());
  if (!wanted.wdir.empty()) app.wdir = wanted.wdir;
  for (const std::string& variable : wanted.environment) add_variable(app.environment, variable);
  REGROUP_ASSIGN_OR_RETURN(app.path,
                           process::find_member_program(wanted.command, app.wdir, app.environment));
  return app;
}

Mpi::Mpi(boost::asio::io_context& loop, HelperOptions options, const process::App& app,
         MpiEvents events)
    : limit_(options.answer_limit), beat_(loop), events_(std::move(events)) {
  if (options.library.empty()) options.library = find_pmix(app);
  auto helper = Helper::start(
      loop, options,
      {[this](const Message& message, base::Fd fd) { on_message(message, std::move(fd)); },
       [this](const base::Status& why) { on_lost(why); }});
  if (helper.ok()) {
    helper_ = std::move(*helper);
    watch();
  } else {
    events_.said(fmt::format("{}: {}", kWithout, helper.status().message()));
  }
}

std::optional<Fetched> not_found(const Message& message) {
  if (const auto* fetch = std::get_if<Fetch>(&message))
    return Fetched{fetch->request, fetch->host, kPmixNotFound, {}};
  if (const auto* call = std::get_if<NameCall>(&message))
    return Fetched{call->request, call->host, kPmixNotFound, {}};
  return std::nullopt;
}

// send() may find that regroup-pmi is gone, and lose() answers then.
void Mpi::tell(const Message& message) {
  const auto answer = not_found(message);
  if (answer) questions_.emplace(answer->host, answer->request);
  if (!send(message) && answer) deny(*answer);
}

void Mpi::deny(const Fetched& answer) {
  if (questions_.erase({answer.host, answer.request}) > 0) events_.exchange(answer);
}

bool Mpi::send(const Message& message) { return helper_ && !lost_ && helper_->send(message); }

void Mpi::settle() {
  if (helper_ && !lost_) helper_->poll();
}

// Counts unanswered beats instead of time: after this process itself was stopped (SIGSTOP),
// regroup-pmi still gets the whole limit to answer.
void Mpi::watch() {
  beat_.expires_after(
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(limit_ / kBeats));
  beat_.async_wait([this](const boost::system::error_code& error) {
    if (error || lost_) return;
    if (unanswered_ == kBeats) helper_->poll();
    if (lost_) return;
    if (unanswered_ == kBeats) return give_up();
    if (unanswered_++ == 0) send(Ping{});
    watch();
  });
}

// Ranks that wait for regroup-pmi in MPI_Init fail now.
void Mpi::give_up() {
  ::kill(helper_->pid(), SIGKILL);
  const double seconds = std::chrono::duration<double>(limit_).count();
  lose(fmt::format("did not answer for {:g} s and is killed", seconds), "");
}

Mpi::OpeningId Mpi::await(const std::vector<ProcId>& processes, Ready ready) {
  const OpeningId id = ++last_opening_;
  openings_[id] = {std::vector<process::Extras>(processes.size()), processes.size(),
                   std::move(ready)};
  for (std::size_t i = 0; i < processes.size(); ++i) awaited_[processes[i]] = {id, i};
  return id;
}

void Mpi::open(const OpenSpace& space, Ready ready) {
  const std::uint32_t size = std::accumulate(space.app_sizes.begin(), space.app_sizes.end(), 0U);
  std::vector<ProcId> here;
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    if (space.here(rank)) here.push_back({space.space, rank});
  }
  if (!helper_ || lost_) return ready(std::vector<process::Extras>(here.size()));
  if (here.empty()) {  // regroup-pmi must know it nevertheless: processes here may connect to that
                       // space
    send(space);
    return ready({});
  }
  const OpeningId id = await(here, std::move(ready));
  if (send(space) || lost_) return;
  events_.said(
      fmt::format("{} members do not fit into a message to regroup-pmi: {}", size, kWithout));
  finish(id);
}

void Mpi::reopen(ProcId process, std::function<void(process::Extras)> ready) {
  if (!helper_ || lost_) return ready({});
  await({process}, [ready = std::move(ready)](std::vector<process::Extras> extras) {
    ready(std::move(extras.at(0)));
  });
  send(ReplaceRank{process});
}

void Mpi::finish(OpeningId id) {
  const auto found = openings_.find(id);
  if (found == openings_.end()) return;
  Opening opening = std::move(found->second);
  openings_.erase(found);
  std::erase_if(awaited_, [id](const auto& entry) { return entry.second.opening == id; });
  opening.ready(std::move(opening.extras));
}

void Mpi::on_message(const Message& message, base::Fd fd) {
  unanswered_ = 0;
  if (const auto* services = std::get_if<Services>(&message)) on_services(*services);
  if (const auto* ready = std::get_if<RankReady>(&message)) on_rank_ready(*ready, std::move(fd));
  if (const auto* connected = std::get_if<Connected>(&message)) events_.connected(*connected);
  if (const auto* finalized = std::get_if<Finalized>(&message)) events_.finalized(*finalized);
  if (const auto* aborted = std::get_if<Aborted>(&message)) events_.aborted(*aborted);
  if (const auto* connection = std::get_if<GroupsConnected>(&message))
    events_.groups_connected(*connection);
  if (const auto* disconnection = std::get_if<GroupsDisconnected>(&message))
    events_.groups_disconnected(*disconnection);
  if (const auto* spawn = std::get_if<Spawn>(&message)) events_.spawn(*spawn);
  if (const auto* fetched = std::get_if<Fetched>(&message))
    questions_.erase({fetched->host, fetched->request});
  if (std::holds_alternative<Contribute>(message) || std::holds_alternative<Fetch>(message) ||
      std::holds_alternative<Fetched>(message) || std::holds_alternative<NameCall>(message)) {
    events_.exchange(message);
  }
}

void Mpi::on_services(const Services& services) {
  if (services.pmix) return;
  events_.said(fmt::format(
      "no PMIx server, so ranks of an Open MPI program do not find each other: {}", services.note));
}

void Mpi::on_rank_ready(const RankReady& ready, base::Fd fd) {
  const auto found = awaited_.find(ready.process);
  if (found == awaited_.end()) return;
  const auto [id, index] = found->second;
  awaited_.erase(found);
  Opening& opening = openings_.at(id);
  for (const std::string& variable : ready.environment)
    add_variable(opening.extras[index].environment, variable);
  opening.extras[index].inherited = std::move(fd);
  if (--opening.missing == 0) finish(id);
}

void Mpi::on_lost(const base::Status& why) { lose("has ended", ": " + why.message()); }

void Mpi::lose(const std::string& what, const std::string& why) {
  if (std::exchange(lost_, true)) return;
  events_.said(fmt::format("regroup-pmi (pid {}) {}: {}{}", helper_->pid(), what, kWithout, why));
  while (!openings_.empty()) finish(openings_.begin()->first);
  while (!questions_.empty()) {
    const auto [host, request] = *questions_.begin();
    deny({request, host, kPmixNotFound, {}});
  }
}

}  // namespace regroup::pmi
